// The recurrent operations on every level against double precision, and bit for bit the same alone, in a batch, in
// chunks and on any number of threads.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>

#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/recurrent_scene.h"

namespace quire::test {
namespace {

std::int64_t num_scene_rows() {
  std::int64_t rows = 0;
  for (const std::int64_t length : kSequenceLengths)
    rows += length;
  return rows;
}

std::vector<Matrix> random_inputs(std::uint32_t seed, const std::vector<std::int64_t>& cols) {
  std::mt19937 random(seed);
  std::vector<Matrix> out;
  for (const std::int64_t each : cols)
    out.push_back(random_matrix(random, num_scene_rows(), each));
  return out;
}

double exact_sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double exact_softplus(double x) {
  return x > 30.0 ? x : std::log1p(std::exp(x));
}

std::vector<float> negative_floats(std::mt19937& random, std::int64_t count) {
  std::vector<float> out = random_floats(random, count);
  for (float& x : out)
    x = -0.1f - std::fabs(x);
  return out;
}

// reference(first, length, out): the rows of one sequence in double precision, out [rows][cols].
using Reference = std::function<void(std::int64_t first, std::int64_t length, std::vector<std::vector<double>>& out)>;

void check_operation(const std::vector<Matrix>& inputs, std::int64_t state_floats, std::int64_t out_cols,
                     const Reference& reference,
                     const std::function<void(RecurrentOps&, const AttentionBatch&, const StatePart&,
                                              std::vector<Matrix>&, MatrixView)>& operation) {
  const auto cols = static_cast<std::size_t>(out_cols);
  std::vector<std::vector<double>> expected(static_cast<std::size_t>(num_scene_rows()), std::vector<double>(cols));
  std::int64_t first = 0;
  for (const std::int64_t length : kSequenceLengths) {
    reference(first, length, expected);
    first += length;
  }
  for (const int threads : {1, 3}) {
    for (LevelBackend& level : level_backends(threads)) {
      const auto run = [&](const Cut& cut) {
        return run_recurrent(*level.backend, cut, state_floats, inputs, out_cols,
                             [&](const AttentionBatch& batch, const StatePart& state, std::vector<Matrix>& in,
                                 MatrixView out) { operation(*level.backend->recurrent(), batch, state, in, out); });
      };
      Matrix whole = run(kCuts.front());
      double worst = 0.0;
      for (std::int64_t row = 0; row < num_scene_rows(); ++row) {
        for (std::size_t col = 0; col < cols; ++col) {
          const double actual = whole.at(row, static_cast<std::int64_t>(col));
          const double wanted = expected[static_cast<std::size_t>(row)][col];
          worst = std::max(worst, std::fabs(actual - wanted) / (1.0 + std::fabs(wanted)));
          if (std::isnan(actual)) worst = 1e9;
        }
      }
      INFO(level.level << " on " << threads << " threads");
      CHECK(worst < 2e-5);
      for (const Cut& cut : kCuts) {
        INFO("chunks of " << cut.chunk << (cut.together ? " together" : " alone"));
        CHECK(same_rows(run(cut), 0, whole, 0, num_scene_rows()));
      }
    }
  }
}

double element(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  return matrix.data[static_cast<std::size_t>(row * matrix.stride + col)];
}

double value_of(const std::vector<float>& values, std::int64_t index) {
  return values[static_cast<std::size_t>(index)];
}

struct ConvCase {
  std::int64_t channels, taps;
  bool bias, silu, gates;
};

void check_conv(const ConvCase& shape) {
  std::mt19937 random(3);
  const std::vector<float> weights = random_floats(random, shape.taps * shape.channels);
  const std::vector<float> bias = random_floats(random, shape.channels);
  const std::vector<Matrix> inputs = random_inputs(4, {shape.channels, shape.channels, shape.channels});
  const auto reference = [&](std::int64_t first, std::int64_t length, std::vector<std::vector<double>>& out) {
    for (std::int64_t row = 0; row < length; ++row) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        double sum = shape.bias ? value_of(bias, c) : 0.0;
        for (std::int64_t j = 0; j < shape.taps; ++j) {
          const std::int64_t from = row - shape.taps + 1 + j;
          if (from < 0) continue;
          const double before = shape.gates ? element(inputs[1], first + from, c) : 1.0;
          sum += value_of(weights, j * shape.channels + c) * element(inputs[0], first + from, c) * before;
        }
        if (shape.silu) sum *= exact_sigmoid(sum);
        out[static_cast<std::size_t>(first + row)][static_cast<std::size_t>(c)] =
            sum * (shape.gates ? element(inputs[2], first + row, c) : 1.0);
      }
    }
  };
  check_operation(inputs, conv_state_floats(shape.channels, shape.taps), shape.channels, reference,
                  [&](RecurrentOps& ops, const AttentionBatch& batch, const StatePart& state, std::vector<Matrix>& in,
                      MatrixView out) {
                    const ConvArgs args{.taps = shape.taps,
                                        .weights = weights.data(),
                                        .bias = shape.bias ? bias.data() : nullptr,
                                        .silu = shape.silu};
                    ops.short_conv(batch, state, args, in[0].view(), shape.gates ? in[1].view() : MatrixView{},
                                   shape.gates ? in[2].view() : MatrixView{}, out);
                  });
}

// A row's head, normalised to length one.
std::vector<double> unit_head(const Matrix& from, std::int64_t row, std::int64_t head, std::int64_t size) {
  std::vector<double> out(static_cast<std::size_t>(size));
  double sum = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = element(from, row, head * size + static_cast<std::int64_t>(i));
    sum += out[i] * out[i];
  }
  for (double& x : out)
    x /= std::max(std::sqrt(sum), 1e-3);
  return out;
}

// Computes a head's row by the delta rule: `s` decays by `decay(key element)` and is corrected towards the row's value.
void delta_row(const DeltaArgs& args, const std::vector<Matrix>& inputs, std::int64_t head, std::int64_t row,
               const std::function<double(std::size_t)>& decay, std::vector<std::vector<double>>& s,
               std::vector<double>& out) {
  const std::int64_t key_head = args.grouped ? head / (args.value_heads / args.key_heads) : head % args.key_heads;
  const std::vector<double> q = unit_head(inputs[0], row, key_head, args.key_dim);
  const std::vector<double> k = unit_head(inputs[1], row, key_head, args.key_dim);
  for (std::size_t i = 0; i < k.size(); ++i) {
    const double kept = decay(i);
    for (double& x : s[i])
      x *= kept;
  }
  for (std::size_t j = 0; j < s[0].size(); ++j) {
    const std::int64_t column = head * args.value_dim + static_cast<std::int64_t>(j);
    double seen = 0.0;
    for (std::size_t i = 0; i < k.size(); ++i)
      seen += s[i][j] * k[i];
    const double d = exact_sigmoid(element(inputs[4], row, head)) * (element(inputs[2], row, column) - seen);
    double read = 0.0;
    for (std::size_t i = 0; i < k.size(); ++i) {
      s[i][j] += k[i] * d;
      read += s[i][j] * q[i];
    }
    out[static_cast<std::size_t>(column)] = read / std::sqrt(static_cast<double>(args.key_dim));
  }
}

void check_delta(DeltaArgs args) {
  std::mt19937 random(5);
  const std::int64_t decays = args.value_heads * (args.per_channel ? args.key_dim : 1);
  const std::vector<float> a = negative_floats(random, args.value_heads);
  const std::vector<float> dt_bias = random_floats(random, decays);
  const std::int64_t keys = args.key_heads * args.key_dim;
  const std::int64_t values = args.value_heads * args.value_dim;
  const std::vector<Matrix> inputs = random_inputs(6, {keys, keys, values, decays, args.value_heads});
  args.a = a.data();
  args.dt_bias = dt_bias.data();
  args.eps = 1e-3f;
  const auto reference = [&](std::int64_t first, std::int64_t length, std::vector<std::vector<double>>& out) {
    for (std::int64_t head = 0; head < args.value_heads; ++head) {
      std::vector<std::vector<double>> s(static_cast<std::size_t>(args.key_dim),
                                         std::vector<double>(static_cast<std::size_t>(args.value_dim)));
      for (std::int64_t row = first; row < first + length; ++row) {
        const auto decay = [&](std::size_t i) {
          const std::int64_t index = args.per_channel ? head * args.key_dim + static_cast<std::int64_t>(i) : head;
          return std::exp(value_of(a, head) *
                          exact_softplus(element(inputs[3], row, index) + value_of(dt_bias, index)));
        };
        delta_row(args, inputs, head, row, decay, s, out[static_cast<std::size_t>(row)]);
      }
    }
  };
  check_operation(inputs, matrix_state_floats(args.value_heads, args.key_dim, args.value_dim), values, reference,
                  [&](RecurrentOps& ops, const AttentionBatch& batch, const StatePart& state, std::vector<Matrix>& in,
                      MatrixView out) {
                    ops.delta_rule(batch, state, args, in[0].view(), in[1].view(), in[2].view(), in[3].view(),
                                   in[4].view(), out);
                  });
}

void check_state_space(StateSpaceArgs args) {
  std::mt19937 random(7);
  const std::vector<float> a = negative_floats(random, args.num_heads);
  const std::vector<float> d = random_floats(random, args.num_heads);
  const std::vector<float> dt_bias = random_floats(random, args.num_heads);
  const std::int64_t inner = args.num_heads * args.head_dim;
  const std::int64_t shared = args.num_groups * args.state_size;
  const std::vector<Matrix> inputs = random_inputs(8, {inner, shared, shared, args.num_heads});
  args.a = a.data();
  args.d = d.data();
  args.dt_bias = dt_bias.data();
  const auto reference = [&](std::int64_t first, std::int64_t length, std::vector<std::vector<double>>& out) {
    for (std::int64_t column = 0; column < inner; ++column) {
      const std::int64_t head = column / args.head_dim;
      const std::int64_t group = head / (args.num_heads / args.num_groups);
      std::vector<double> s(static_cast<std::size_t>(args.state_size));
      for (std::int64_t row = first; row < first + length; ++row) {
        const double step = exact_softplus(element(inputs[3], row, head) + value_of(dt_bias, head));
        const double x = element(inputs[0], row, column);
        double sum = value_of(d, head) * x;
        for (std::int64_t i = 0; i < args.state_size; ++i) {
          double& one = s[static_cast<std::size_t>(i)];
          one = one * std::exp(step * value_of(a, head)) +
                step * x * element(inputs[1], row, group * args.state_size + i);
          sum += one * element(inputs[2], row, group * args.state_size + i);
        }
        out[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = sum;
      }
    }
  };
  check_operation(inputs, matrix_state_floats(args.num_heads, args.state_size, args.head_dim), inner, reference,
                  [&](RecurrentOps& ops, const AttentionBatch& batch, const StatePart& state, std::vector<Matrix>& in,
                      MatrixView out) {
                    ops.state_space(batch, state, args, in[0].view(), in[1].view(), in[2].view(), in[3].view(), out);
                  });
}

void check_scan(std::int64_t channels, std::int64_t state_size) {
  std::mt19937 random(9);
  const std::vector<float> a = negative_floats(random, channels * state_size);
  const std::vector<float> d = random_floats(random, channels);
  const std::vector<float> dt_bias = random_floats(random, channels);
  const std::vector<Matrix> inputs = random_inputs(10, {channels, state_size, state_size, channels});
  const auto reference = [&](std::int64_t first, std::int64_t length, std::vector<std::vector<double>>& out) {
    for (std::int64_t column = 0; column < channels; ++column) {
      std::vector<double> s(static_cast<std::size_t>(state_size));
      for (std::int64_t row = first; row < first + length; ++row) {
        const double step = exact_softplus(element(inputs[3], row, column) + value_of(dt_bias, column));
        const double x = element(inputs[0], row, column);
        double sum = value_of(d, column) * x;
        for (std::int64_t i = 0; i < state_size; ++i) {
          double& one = s[static_cast<std::size_t>(i)];
          one = one * std::exp(step * value_of(a, i * channels + column)) + step * x * element(inputs[1], row, i);
          sum += one * element(inputs[2], row, i);
        }
        out[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = sum;
      }
    }
  };
  check_operation(inputs, matrix_state_floats(1, state_size, channels), channels, reference,
                  [&](RecurrentOps& ops, const AttentionBatch& batch, const StatePart& state, std::vector<Matrix>& in,
                      MatrixView out) {
                    const SelectiveScanArgs args{
                        .state_size = state_size, .a = a.data(), .d = d.data(), .dt_bias = dt_bias.data()};
                    ops.selective_scan(batch, state, args, in[0].view(), in[1].view(), in[2].view(), in[3].view(), out);
                  });
}

}  // namespace

TEST_CASE("short_conv agrees with double precision and carries its rows from chunk to chunk") {
  for (const ConvCase& shape : {ConvCase{5, 3, false, false, true},
                                {48, 4, true, true, false},
                                {300, 4, false, true, false},
                                {64, 2, true, false, true},
                                {33, 8, true, true, false}}) {
    INFO(shape.channels << " channels, " << shape.taps << " taps");
    check_conv(shape);
  }
}

namespace {

void check_delta_shapes(bool per_channel, bool grouped) {
  for (const auto& [key_heads, value_heads, key_dim, value_dim] :
       {std::array<std::int64_t, 4>{2, 4, 16, 16}, {3, 3, 24, 40}, {1, 2, 128, 128}}) {
    INFO(key_dim << "x" << value_dim << (per_channel ? " per channel" : "") << (grouped ? " grouped" : ""));
    check_delta({.key_heads = key_heads,
                 .value_heads = value_heads,
                 .key_dim = key_dim,
                 .value_dim = value_dim,
                 .grouped = grouped,
                 .per_channel = per_channel});
  }
}

}  // namespace

TEST_CASE("delta_rule agrees with double precision and carries its state from chunk to chunk") {
  check_delta_shapes(false, false);
  check_delta_shapes(true, true);
}

TEST_CASE("delta_rule in its other forms agrees with double precision and carries its state", "[.long]") {
  check_delta_shapes(false, true);
  check_delta_shapes(true, false);
}

TEST_CASE("state_space agrees with double precision and carries its state from chunk to chunk") {
  check_state_space({.num_heads = 4, .head_dim = 8, .state_size = 16, .num_groups = 2});
  check_state_space({.num_heads = 3, .head_dim = 64, .state_size = 128, .num_groups = 1});
}

TEST_CASE("selective_scan agrees with double precision and carries its state from chunk to chunk") {
  check_scan(40, 16);
  check_scan(96, 5);
}

TEST_CASE("gated_norm agrees with double precision in each of its orders") {
  using Order = GatedNormArgs::Order;
  std::mt19937 random(11);
  const std::vector<float> weight = random_floats(random, 60);
  for (LevelBackend& level : level_backends(2)) {
    for (const Order order : {Order::kNormThenGate, Order::kGateThenNorm, Order::kGateOnly}) {
      for (const bool flag : {false, true}) {  // sigmoid and shared weight
        INFO(level.level << " order " << static_cast<int>(order) << " " << flag);
        const bool use_sigmoid = flag && order == Order::kNormThenGate;
        Matrix x = random_matrix(random, 9, 60);
        Matrix gate = random_matrix(random, 9, 60, 3.0f);
        const Matrix before = x;
        level.backend->recurrent()->gated_norm({.order = order,
                                                .sigmoid = use_sigmoid,
                                                .group = 20,
                                                .shared_weight = flag,
                                                .weight = weight.data(),
                                                .eps = 1e-3f},
                                               gate.view(), x.view());
        double worst = x.padding_untouched() ? 0.0 : 1e9;
        for (std::int64_t row = 0; row < 9; ++row) {
          const auto gate_at = [&](std::int64_t col) {
            const double g = element(gate, row, col);
            return use_sigmoid ? exact_sigmoid(g) : g * exact_sigmoid(g);
          };
          const auto value = [&](std::int64_t col) {
            return element(before, row, col) * (order == Order::kNormThenGate ? 1.0 : gate_at(col));
          };
          for (std::int64_t col = 0; col < 60; ++col) {
            double sum = 0.0;
            for (std::int64_t i = col / 20 * 20; i < col / 20 * 20 + 20; ++i)
              sum += value(i) * value(i);
            double expected = value(col);
            if (order != Order::kGateOnly)
              expected *= value_of(weight, flag ? col % 20 : col) / std::sqrt(sum / 20.0 + 1e-3);
            if (order == Order::kNormThenGate) expected *= gate_at(col);
            worst = std::max(worst, std::fabs(element(x, row, col) - expected) / (1.0 + std::fabs(expected)));
          }
        }
        CHECK(worst < 2e-6);
      }
    }
  }
}

TEST_CASE("states are copied, read and written whole") {
  for (LevelBackend& level : level_backends(1)) {
    const auto states = level.backend->recurrent()->allocate_states({.num_states = 3, .floats = 128});
    REQUIRE(states->state_bytes() == 512);
    std::vector<std::byte> bytes(512);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i % 251);
    states->write_state(1, bytes);
    states->copy_state(1, 2);
    std::vector<std::byte> read(512, std::byte{1});
    states->read_state(2, read);
    CHECK(read == bytes);
    states->read_state(0, read);
    CHECK(read == std::vector<std::byte>(512));
  }
}

}  // namespace quire::test
