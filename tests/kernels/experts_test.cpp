// Experts' feed-forwards and the products of heads, against the plain products of which they are made, on every level.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kSize = 256;  // width of an expert
constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kChosen = 2;

using Linears = std::vector<std::unique_ptr<Linear>>;

struct Experts {
  Experts(Backend& backend, DType type) {
    std::mt19937 random(3);
    for (std::int64_t i = 0; i < kExperts; ++i) {
      const Weights gate = random_weights(random, type, kSize, kWidth);
      const Weights up = random_weights(random, type, kSize, kWidth);
      const Weights low = random_weights(random, type, kWidth, kSize);
      const WeightSource both[] = {gate.source(), up.source()};
      const WeightSource one = low.source();
      const std::vector<float> bias = random_floats(random, kWidth, 0.1F);
      gate_up.push_back(backend.load_linear(both, {}));
      down.push_back(backend.load_linear({&one, 1}, bias));
    }
  }
  ExpertArgs args() const { return {.gate_up = gate_up, .down = down, .gated = true, .activation = activation}; }

  Linears gate_up, down;
  ActivationArgs activation;
};

// Changes by an adapter: a matrix each for gate and up of experts 0, 3 and 4, and one for expert 0's down product.
struct Changes {
  Changes(Backend& backend, std::int64_t rank, unsigned seed) : gate_up(kExperts), down(kExperts) {
    std::mt19937 random(seed);
    const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
      return backend.load_linear_beside(random_weights(random, DType::kF32, rows, cols).source());
    };
    for (const std::size_t expert : {0U, 3U, 4U}) {
      for (const std::int64_t first : {std::int64_t{0}, kSize})
        gate_up[expert].push_back({matrix(rank, kWidth), matrix(kSize, rank), first});
    }
    down[0].push_back({matrix(rank, kSize), matrix(kWidth, rank), 0});
  }
  ExpertChange change() const { return {gate_up, down}; }

  std::vector<std::vector<LowRank>> gate_up, down;
};

struct Choices {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Some experts get many rows, one gets none.
Choices make_choices(std::mt19937& random, std::int64_t rows) {
  Choices out;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t first = row % 7 == 0 ? 3 : 0;
    out.ids.push_back(first);
    out.ids.push_back(row % 3 == 0 ? 4 : 1);
  }
  out.weights = random_floats(random, std::ssize(out.ids));
  return out;
}

Matrix run(Backend& backend, const Experts& experts, MatrixView x, std::span<const std::int32_t> ids,
           std::span<const float> weights, std::span<const ExpertChange> changes = {},
           std::span<const std::int32_t> row_changes = {}) {
  constexpr std::int64_t kMostRank = 12;
  Matrix gate_up(std::ssize(ids), 2 * kSize);
  Matrix results(std::ssize(ids), kWidth);
  Matrix out(x.rows, kWidth);
  std::vector<float> low_rank(ids.size() * kMostRank, NAN);
  ExpertArgs args = experts.args();
  args.changes = changes;
  args.row_changes = row_changes;
  args.low_rank = low_rank.data();
  args.low_rank_stride = kMostRank;
  const ExpertChoices choices{x.rows, std::ssize(ids) / x.rows, ids.data(), weights.data()};
  backend.graph()->experts(args, choices, x, gate_up.view(), results.view(), out.view());
  CHECK(out.padding_untouched());
  return out;
}

void add_changes(Backend& backend, const std::vector<LowRank>& changes, MatrixView x, MatrixView out) {
  for (const LowRank& change : changes) {
    Matrix low(1, change.down->out_features());
    const MatrixView part{out.data + change.first_output, 1, change.up->out_features(), out.stride};
    backend.linear(*change.down, x, low.view(), false);
    backend.linear(*change.up, low.view(), part, true);
  }
}

// Computes a row by plain products, one expert after the other.
std::vector<double> expected_row(Backend& backend, const Experts& experts, MatrixView x, const std::int32_t* ids,
                                 const float* weights, const Changes* changes = nullptr) {
  std::vector<double> out(kWidth);
  for (std::int64_t j = 0; j < kChosen; ++j) {
    const auto expert = static_cast<std::size_t>(ids[j]);
    Matrix gate_up(1, 2 * kSize);
    Matrix result(1, kWidth);
    backend.linear(*experts.gate_up[expert], x, gate_up.view(), false);
    if (changes != nullptr) add_changes(backend, changes->gate_up[expert], x, gate_up.view());
    MatrixView gate = gate_up.view();
    gate.cols = kSize;
    const MatrixView up{gate.data + kSize, 1, kSize, gate.stride};
    backend.graph()->activate(experts.activation, gate, up, gate);
    backend.linear(*experts.down[expert], gate, result.view(), false);
    if (changes != nullptr) add_changes(backend, changes->down[expert], gate, result.view());
    for (std::int64_t i = 0; i < kWidth; ++i)
      out[static_cast<std::size_t>(i)] += static_cast<double>(weights[j]) * static_cast<double>(result.at(0, i));
  }
  return out;
}

void check_row(const Matrix& out, std::int64_t row, const std::vector<double>& expected) {
  double worst = 0.0;
  double size = 0.0;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    const double wanted = expected[static_cast<std::size_t>(i)];
    const float got = out.data[static_cast<std::size_t>(row * out.stride + i)];
    worst = std::max(worst, std::fabs(static_cast<double>(got) - wanted));
    size = std::max(size, std::fabs(wanted));
  }
  CHECK(worst <= 1e-5 * size);
}

void check_experts(Backend& backend, const Experts& experts, std::int64_t rows) {
  INFO(rows << " rows");
  std::mt19937 random(5);
  Matrix x = random_matrix(random, rows, kWidth);
  const Choices choices = make_choices(random, rows);
  const Matrix out = run(backend, experts, x.view(), choices.ids, choices.weights);
  for (std::int64_t row = 0; row<rows; row += rows> 16 ? 37 : 1) {
    const auto at = static_cast<std::size_t>(row * kChosen);
    const MatrixView one = x.rows_from(row, 1);
    const Matrix alone = run(backend, experts, one, std::span(choices.ids).subspan(at, kChosen),
                             std::span(choices.weights).subspan(at, kChosen));
    CHECK(same_rows(out, row, alone, 0, 1));
    check_row(out, row, expected_row(backend, experts, one, &choices.ids[at], &choices.weights[at]));
  }
}

// Rows of two adapters and of none, mixed.
void check_changes(Backend& backend, const Experts& experts) {
  constexpr std::int64_t kRows = 24;
  const Changes own[] = {Changes(backend, 12, 6), Changes(backend, 5, 7)};
  const std::vector<ExpertChange> changes{own[0].change(), own[1].change()};
  std::vector<std::int32_t> row_changes;
  for (std::int32_t row = 0; row < kRows; ++row)
    row_changes.push_back(row % 5 / 2 - 1);
  std::mt19937 random(5);
  Matrix x = random_matrix(random, kRows, kWidth);
  const Choices choices = make_choices(random, kRows);
  const Matrix out = run(backend, experts, x.view(), choices.ids, choices.weights, changes, row_changes);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::int32_t index = row_changes[static_cast<std::size_t>(row)];
    const auto at = static_cast<std::size_t>(row * kChosen);
    const MatrixView one = x.rows_from(row, 1);
    const Matrix alone = run(backend, experts, one, std::span(choices.ids).subspan(at, kChosen),
                             std::span(choices.weights).subspan(at, kChosen), changes, std::span(&index, 1));
    CHECK(same_rows(out, row, alone, 0, 1));
    const Changes* changed = index < 0 ? nullptr : &own[index];
    check_row(out, row, expected_row(backend, experts, one, &choices.ids[at], &choices.weights[at], changed));
  }
}

}  // namespace

namespace {

void check_every_type(std::initializer_list<std::int64_t> row_counts) {
  for (const LevelBackend& level : level_backends(2)) {
    for (const DType type : kKernelTypes) {
      INFO(level.level << ", " << dtype_info(type).name);
      const Experts experts(*level.backend, type);
      for (const std::int64_t rows : row_counts)
        check_experts(*level.backend, experts, rows);
    }
  }
}

void check_many_rows(std::initializer_list<DType> types) {
  for (const LevelBackend& level : level_backends(3)) {
    for (const DType type : types) {
      INFO(level.level << ", " << dtype_info(type).name);
      check_experts(*level.backend, Experts(*level.backend, type), 550);
    }
  }
}

}  // namespace

TEST_CASE("A row's experts give the sum of their plain products, whatever rows come with it", "[kernels][graph]") {
  check_every_type({1, 5});
}

TEST_CASE("A row's experts give the sum of their plain products among two and 24 rows", "[kernels][graph][.long]") {
  check_every_type({2, 24});
}

TEST_CASE("Many rows of experts", "[kernels][graph]") {
  check_many_rows({DType::kBF16, DType::kQ4_K});
}

TEST_CASE("Many rows of experts of other types", "[kernels][graph][.long]") {
  check_many_rows({DType::kF32, DType::kQ8_0, DType::kMXFP4});
}

TEST_CASE("What adapters change of experts reaches their rows alone, whatever rows come with them",
          "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(2)) {
    if (!level.backend->has(Ability::kExpertAdapters)) continue;
    for (const DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_K}) {
      INFO(level.level << ", " << dtype_info(type).name);
      Experts experts(*level.backend, type);
      check_changes(*level.backend, experts);
      experts.activation = {.kind = Nonlinearity::kGelu};
      check_changes(*level.backend, experts);
    }
  }
}

TEST_CASE("Experts whose activation is not SwiGLU", "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    Experts experts(*level.backend, DType::kQ8_0);
    for (const Nonlinearity kind : {Nonlinearity::kSwigluOai, Nonlinearity::kGelu}) {
      experts.activation = {.kind = kind};
      check_experts(*level.backend, experts, 9);
    }
    experts.activation = {.kind = Nonlinearity::kSilu, .limit = 0.5F};
    check_experts(*level.backend, experts, 9);
  }
}

TEST_CASE("The product of each head is that of the head alone", "[kernels][graph]") {
  constexpr std::int64_t kHeads = 3;
  for (const LevelBackend& level : level_backends(2)) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
      INFO(level.level << ", " << dtype_info(type).name);
      std::mt19937 random(4);
      Linears heads;
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const Weights weights = random_weights(random, type, 40, 64);
        const WeightSource source = weights.source();
        heads.push_back(level.backend->load_linear({&source, 1}, {}));
      }
      for (const std::int64_t rows : {1, 3, 40}) {
        Matrix x = random_matrix(random, rows, kHeads * 72);  // 8 columns of each head are not multiplied
        Matrix out(rows, kHeads * 48);
        level.backend->graph()->head_linear(heads, x.view(), out.view());
        for (std::int64_t head = 0; head < kHeads; ++head) {
          Matrix alone(rows, 40);
          const MatrixView in{&x.at(0, head * 72), rows, 64, x.stride};
          level.backend->linear(*heads[static_cast<std::size_t>(head)], MatrixView(in), alone.view(), false);
          for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t i = 0; i < 40; ++i)
              REQUIRE(out.at(row, head * 48 + i) == alone.at(row, i));
          }
        }
      }
    }
  }
}
