// The operations of other families' layers against a scalar reference in double precision, on every level.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/kernels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kBlock = 16;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double softplus(double x) {
  return std::log1p(std::exp(x));
}

void check_close(float got, double expected) {
  CHECK(std::fabs(static_cast<double>(got) - expected) <= 2e-4 * (1.0 + std::fabs(expected)));
}

// One sequence of `context` tokens, of which the last `rows` are computed, in blocks in falling order.
struct Scene {
  Scene(std::int64_t context, std::int64_t rows) {
    const std::int64_t blocks = (context + kBlock - 1) / kBlock;
    for (std::int64_t i = 0; i < blocks; ++i)
      tables.push_back(static_cast<std::int32_t>(blocks - 1 - i));
    for (std::int64_t position = context - rows; position < context; ++position)
      slots.push_back(
          static_cast<std::int32_t>(tables[static_cast<std::size_t>(position / kBlock)] * kBlock + position % kBlock));
    starts = {0, static_cast<std::int32_t>(rows)};
    contexts = {static_cast<std::int32_t>(context)};
    table_starts = {0, static_cast<std::int32_t>(blocks)};
  }
  AttentionBatch batch() const {
    return {.query_start = starts,
            .context_len = contexts,
            .block_table_start = table_starts,
            .block_tables = tables,
            .slots = slots};
  }

  std::vector<std::int32_t> starts, contexts, table_starts, tables, slots;
};

struct AttentionCase {
  std::int64_t value_dim = 16;
  AttentionOptions options;
};

// Softmax over the keys that a row sees, straight from the definitions.
std::vector<double> expected_attention(const AttentionCase& test, Matrix& q, Matrix& k, Matrix& v, std::int64_t row,
                                       std::int64_t head, std::int64_t key_dim, std::int64_t kv_heads,
                                       const std::vector<float>& sinks) {
  const AttentionOptions& options = test.options;
  const std::int64_t kv_head = head / (options.num_heads / kv_heads);
  std::vector<double> weights;
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < k.rows; ++t) {
    const std::int64_t distance = row - t;
    if (options.causal && distance < 0) continue;
    if (options.window > 0 && options.causal && distance >= options.window) continue;
    if (options.window > 0 && !options.causal && std::abs(distance) > options.window / 2) continue;
    double score = 0.0;
    for (std::int64_t d = 0; d < key_dim; ++d)
      score += static_cast<double>(q.at(row, head * key_dim + d)) * static_cast<double>(k.at(t, kv_head * key_dim + d));
    score *= static_cast<double>(options.scale);
    const auto cap = static_cast<double>(options.softcap);
    if (cap > 0.0) score = cap * std::tanh(score / cap);
    if (options.alibi > 0.0F) {
      const double slope = std::pow(2.0, -static_cast<double>(options.alibi) * static_cast<double>(head + 1) /
                                             static_cast<double>(options.num_heads));
      score -= slope * static_cast<double>(std::abs(distance));
    }
    weights.push_back(std::exp(score));
    tokens.push_back(t);
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.sinks != nullptr) sum += std::exp(static_cast<double>(sinks[static_cast<std::size_t>(head)]));
  std::vector<double> out(static_cast<std::size_t>(test.value_dim));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::int64_t d = 0; d < test.value_dim; ++d) {
      const float value =
          options.value_in_key ? k.at(tokens[i], kv_head * key_dim + d) : v.at(tokens[i], kv_head * test.value_dim + d);
      out[static_cast<std::size_t>(d)] += weights[i] / sum * static_cast<double>(value);
    }
  }
  return out;
}

void check_attention(Backend& backend, AttentionCase test, std::int64_t kv_heads) {
  constexpr std::int64_t kTokens = 75;
  constexpr std::int64_t kKeyDim = 24;
  std::mt19937 random(7);
  const std::int64_t heads = test.options.num_heads;
  Matrix q = random_matrix(random, kTokens, heads * kKeyDim);
  Matrix k = random_matrix(random, kTokens, kv_heads * kKeyDim);
  Matrix v = random_matrix(random, kTokens, kv_heads * test.value_dim);
  const std::vector<float> sinks = random_floats(random, heads);
  if (test.options.sinks != nullptr) test.options.sinks = sinks.data();
  test.options.scale = 0.2F;
  KvLayout layout{.num_layers = 1, .num_blocks = 5, .block_size = kBlock, .dtype = KvDType::kF32};
  layout.layers = {{kv_heads, kKeyDim, test.options.value_in_key ? 0 : test.value_dim}};
  const auto kv = backend.allocate_kv(layout);
  const Scene scene(kTokens, kTokens);
  backend.store_kv(*kv, 0, scene.batch(), k.view(), v.view());
  Matrix out(kTokens, heads * test.value_dim);
  backend.graph()->attention(*kv, 0, scene.batch(), q.view(), test.options, out.view());
  for (std::int64_t row = 0; row < kTokens; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto expected = expected_attention(test, q, k, v, row, head, kKeyDim, kv_heads, sinks);
      for (std::int64_t d = 0; d < test.value_dim; ++d)
        check_close(out.at(row, head * test.value_dim + d), expected[static_cast<std::size_t>(d)]);
    }
  }
  if (!test.options.causal) return;
  // The last row alone has the same bits.
  const Scene last(kTokens, 1);
  Matrix alone(1, out.cols);
  backend.graph()->attention(*kv, 0, last.batch(), q.rows_from(kTokens - 1, 1), test.options, alone.view());
  CHECK(same_rows(out, kTokens - 1, alone, 0, 1));
}

}  // namespace

TEST_CASE("Attention with windows, caps, sinks and biases is the softmax of its definition", "[kernels][graph]") {
  const float has_sinks = 0.0F;
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    check_attention(*level.backend, {.options = {.num_heads = 4}}, 2);
    check_attention(*level.backend, {.options = {.num_heads = 4, .window = 16}}, 2);
    check_attention(*level.backend, {.options = {.num_heads = 4, .window = 9, .softcap = 1.5F, .sinks = &has_sinks}},
                    1);
    check_attention(*level.backend, {.options = {.num_heads = 4, .causal = false, .window = 10}}, 4);
    check_attention(*level.backend, {.options = {.num_heads = 4, .causal = false, .alibi = 8.0F}}, 4);
    check_attention(*level.backend, {.value_dim = 16, .options = {.num_heads = 3, .value_in_key = true}}, 1);
  }
}

TEST_CASE("Routing chooses by biased scores and weighs by the scores themselves", "[kernels][graph]") {
  const auto backend = std::move(level_backends(1).front().backend);
  Matrix logits(1, 4);
  const float values[] = {0.5F, 2.0F, 2.0F, -1.0F};
  const float bias[] = {0.0F, 0.0F, 0.0F, 9.0F};
  std::copy(values, values + 4, &logits.at(0, 0));
  std::vector<std::int32_t> ids(2);
  std::vector<float> weights(2);
  RouteOptions options{.num_chosen = 2};
  backend->graph()->route(logits.view(), options, ids, weights);
  CHECK(ids == std::vector<std::int32_t>{1, 2});  // a tie goes to the lower index
  CHECK(weights[0] == weights[1]);
  options.choice_bias = bias;
  options.gate = RouteOptions::Gate::kSigmoid;
  options.normalise = true;
  options.scale = 2.0F;
  backend->graph()->route(logits.view(), options, ids, weights);
  CHECK(ids == std::vector<std::int32_t>{3, 1});
  const double sum = sigmoid(-1.0) + sigmoid(2.0);
  check_close(weights[0], 2.0 * sigmoid(-1.0) / sum);
  check_close(weights[1], 2.0 * sigmoid(2.0) / sum);
  options = {.gate = RouteOptions::Gate::kSigmoid, .num_chosen = 1, .num_groups = 2};
  const float group_bias[] = {0.9F, 0.0F, 0.0F, 0.0F};
  options.choice_bias = group_bias;
  backend->graph()->route(logits.view(), options, {ids.data(), 1}, {weights.data(), 1});
  CHECK(ids[0] == 0);
}

TEST_CASE("Experts' products are those of the expert alone", "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    std::mt19937 random(3);
    std::vector<std::unique_ptr<Linear>> experts;
    for (int i = 0; i < 3; ++i) {
      const Weights weights = random_weights(random, DType::kF32, 20, 32);
      const WeightSource source = weights.source();
      experts.push_back(level.backend->load_linear({&source, 1}, {}));
    }
    const Matrix x = random_matrix(random, 5, 32);
    Matrix in = x;
    const std::vector<std::int32_t> ids{2, 0, 0, 1, 2, 1, 0, 2, 1, 2};
    Matrix out(10, 20);
    level.backend->graph()->expert_linear(experts, ids, 2, in.view(), out.view());
    for (std::int64_t i = 0; i < 10; ++i) {
      Matrix alone(1, 20);
      level.backend->linear(*experts[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)])],
                            in.rows_from(i / 2, 1), alone.view(), false);
      CHECK(same_rows(out, i, alone, 0, 1));
    }
  }
}

namespace {

struct DeltaScene {
  static constexpr std::int64_t kRows = 9, kKeyHeads = 2, kValueHeads = 4, kKeyDim = 8, kValueDim = 12;
  DeltaScene() : random(11) {
    q = random_matrix(random, kRows, kKeyHeads * kKeyDim);
    k = random_matrix(random, kRows, kKeyHeads * kKeyDim);
    v = random_matrix(random, kRows, kValueHeads * kValueDim);
    decay = random_matrix(random, kRows, kValueHeads);
    beta = random_matrix(random, kRows, kValueHeads);
    dt_bias = random_floats(random, kValueHeads);
    a = {-0.3F, -0.9F, -0.1F, -1.5F};
  }
  DeltaArgs args() const {
    return {.key_heads = kKeyHeads,
            .value_heads = kValueHeads,
            .key_dim = kKeyDim,
            .value_dim = kValueDim,
            .eps = 1e-6F,
            .a = a.data(),
            .dt_bias = dt_bias.data()};
  }

  std::mt19937 random;
  Matrix q{0, 0}, k{0, 0}, v{0, 0}, decay{0, 0}, beta{0, 0};
  std::vector<float> dt_bias, a;
};

std::vector<double> unit(Matrix& x, std::int64_t row, std::int64_t first, std::int64_t count) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i)
    squares += std::pow(static_cast<double>(x.at(row, first + i)), 2.0);
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<double>(x.at(row, first + i)) / std::sqrt(squares));
  return out;
}

}  // namespace

TEST_CASE("The gated delta rule is its recurrence, whole and in chunks", "[kernels][graph]") {
  using S = DeltaScene;
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    DeltaScene scene;
    GraphOps& graph = *level.backend->graph();
    const auto states = graph.allocate_states(2, 5 + S::kValueHeads * S::kKeyDim * S::kValueDim);
    const std::vector<std::int32_t> slots{1};
    const StateRef state{states.get(), slots, 5};
    Matrix out(S::kRows, S::kValueHeads * S::kValueDim);
    graph.delta_rule(Scene(S::kRows, S::kRows).batch(), state, scene.args(), scene.q.view(), scene.k.view(),
                     scene.v.view(), scene.decay.view(), scene.beta.view(), out.view());
    for (std::int64_t head = 0; head < S::kValueHeads; ++head) {
      const std::int64_t key_head = head % S::kKeyHeads;
      std::vector<std::vector<double>> s(S::kKeyDim, std::vector<double>(S::kValueDim));
      for (std::int64_t row = 0; row < S::kRows; ++row) {
        const auto q = unit(scene.q, row, key_head * S::kKeyDim, S::kKeyDim);
        const auto k = unit(scene.k, row, key_head * S::kKeyDim, S::kKeyDim);
        const auto h = static_cast<std::size_t>(head);
        const double g = std::exp(static_cast<double>(scene.a[h]) *
                                  softplus(static_cast<double>(scene.decay.at(row, head) + scene.dt_bias[h])));
        for (std::size_t j = 0; j < S::kValueDim; ++j) {
          double seen = 0.0;
          for (std::size_t i = 0; i < S::kKeyDim; ++i)
            seen += (s[i][j] *= g) * k[i];
          const double value = static_cast<double>(scene.v.at(row, head * S::kValueDim + static_cast<std::int64_t>(j)));
          const double d = (value - seen) * sigmoid(static_cast<double>(scene.beta.at(row, head)));
          double expected = 0.0;
          for (std::size_t i = 0; i < S::kKeyDim; ++i)
            expected += (s[i][j] += k[i] * d) * q[i] / std::sqrt(static_cast<double>(S::kKeyDim));
          check_close(out.at(row, head * S::kValueDim + static_cast<std::int64_t>(j)), expected);
        }
      }
    }
    Matrix chunked(S::kRows, out.cols);
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 1}, {5, 4}}) {
      graph.delta_rule(Scene(first + count, count).batch(), state, scene.args(), scene.q.rows_from(first, count),
                       scene.k.rows_from(first, count), scene.v.rows_from(first, count),
                       scene.decay.rows_from(first, count), scene.beta.rows_from(first, count),
                       chunked.rows_from(first, count));
    }
    CHECK(same_rows(out, 0, chunked, 0, S::kRows));
  }
}

TEST_CASE("Mamba-2 and the short convolution are their recurrences, whole and in chunks", "[kernels][graph]") {
  constexpr std::int64_t kRows = 7, kHeads = 4, kDim = 5, kState = 20, kGroups = 2, kTaps = 4;
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    std::mt19937 random(5);
    GraphOps& graph = *level.backend->graph();
    Matrix x = random_matrix(random, kRows, kHeads * kDim);
    Matrix b = random_matrix(random, kRows, kGroups * kState);
    Matrix c = random_matrix(random, kRows, kGroups * kState);
    Matrix dt = random_matrix(random, kRows, kHeads);
    const std::vector<float> a{-0.2F, -1.0F, -0.5F, -2.0F};
    const std::vector<float> d = random_floats(random, kHeads);
    const std::vector<float> dt_bias = random_floats(random, kHeads);
    const MambaArgs args{.num_heads = kHeads,
                         .head_dim = kDim,
                         .state_size = kState,
                         .num_groups = kGroups,
                         .a = a.data(),
                         .d = d.data(),
                         .dt_bias = dt_bias.data()};
    const auto states = graph.allocate_states(1, kHeads * kDim * kState);
    const std::vector<std::int32_t> slots{0};
    const StateRef state{states.get(), slots, 0};
    Matrix out(kRows, kHeads * kDim);
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}}) {
      graph.mamba2(Scene(first + count, count).batch(), state, args, x.rows_from(first, count),
                   b.rows_from(first, count), c.rows_from(first, count), dt.rows_from(first, count),
                   out.rows_from(first, count));
    }
    for (std::int64_t unit = 0; unit < kHeads * kDim; ++unit) {
      const std::int64_t head = unit / kDim;
      const std::int64_t first = head / (kHeads / kGroups) * kState;
      const auto h = static_cast<std::size_t>(head);
      std::vector<double> s(kState);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const double step = softplus(static_cast<double>(dt.at(row, head) + dt_bias[h]));
        const auto in = static_cast<double>(x.at(row, unit));
        double expected = static_cast<double>(d[h]) * in;
        for (std::int64_t i = 0; i < kState; ++i) {
          double& at = s[static_cast<std::size_t>(i)];
          at = at * std::exp(step * static_cast<double>(a[h])) + step * in * static_cast<double>(b.at(row, first + i));
          expected += at * static_cast<double>(c.at(row, first + i));
        }
        check_close(out.at(row, unit), expected);
      }
    }
    const std::vector<float> kernel = random_floats(random, x.cols * kTaps);
    const std::vector<float> bias = random_floats(random, x.cols);
    Matrix original = x;
    const auto rows_kept = graph.allocate_states(1, (kTaps - 1) * x.cols);
    const StateRef kept{rows_kept.get(), slots, 0};
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 2}, {2, 5}}) {
      graph.short_conv(Scene(first + count, count).batch(), kept, kernel.data(), bias.data(), kTaps,
                       x.rows_from(first, count));
    }
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t col = 0; col < x.cols; ++col) {
        auto expected = static_cast<double>(bias[static_cast<std::size_t>(col)]);
        for (std::int64_t tap = 0; tap < kTaps; ++tap) {
          const std::int64_t from = row - (kTaps - 1) + tap;
          if (from >= 0)
            expected += static_cast<double>(kernel[static_cast<std::size_t>(col * kTaps + tap)]) *
                        static_cast<double>(original.at(from, col));
        }
        check_close(x.at(row, col), expected);
      }
    }
  }
}
