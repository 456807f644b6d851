// Experts' feed-forwards and the products of heads, against the plain products of which they are made, on every level.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kSize = 256;  // of an expert
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

struct Choices {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Some experts get many rows, one of them none.
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
           std::span<const float> weights) {
  Matrix gate_up(std::ssize(ids), 2 * kSize);
  Matrix results(std::ssize(ids), kWidth);
  Matrix out(x.rows, kWidth);
  const ExpertChoices choices{x.rows, std::ssize(ids) / x.rows, ids.data(), weights.data()};
  backend.graph()->experts(experts.args(), choices, x, gate_up.view(), results.view(), out.view());
  CHECK(out.padding_untouched());
  return out;
}

// One row by plain products, one expert after the other.
std::vector<double> expected_row(Backend& backend, const Experts& experts, MatrixView x, const std::int32_t* ids,
                                 const float* weights) {
  std::vector<double> out(kWidth);
  for (std::int64_t j = 0; j < kChosen; ++j) {
    const auto expert = static_cast<std::size_t>(ids[j]);
    Matrix gate_up(1, 2 * kSize);
    Matrix result(1, kWidth);
    backend.linear(*experts.gate_up[expert], x, gate_up.view(), false);
    MatrixView gate = gate_up.view();
    gate.cols = kSize;
    const MatrixView up{gate.data + kSize, 1, kSize, gate.stride};
    backend.graph()->activate(experts.activation, gate, up, gate);
    backend.linear(*experts.down[expert], gate, result.view(), false);
    for (std::int64_t i = 0; i < kWidth; ++i)
      out[static_cast<std::size_t>(i)] += static_cast<double>(weights[j]) * static_cast<double>(result.at(0, i));
  }
  return out;
}

void check_experts(Backend& backend, const Experts& experts, std::int64_t rows) {
  INFO(rows << " rows");
  std::mt19937 random(5);
  Matrix x = random_matrix(random, rows, kWidth);
  const Choices choices = make_choices(random, rows);
  Matrix out = run(backend, experts, x.view(), choices.ids, choices.weights);
  for (std::int64_t row = 0; row<rows; row += rows> 16 ? 37 : 1) {
    const auto at = static_cast<std::size_t>(row * kChosen);
    const MatrixView one = x.rows_from(row, 1);
    const Matrix alone = run(backend, experts, one, std::span(choices.ids).subspan(at, kChosen),
                             std::span(choices.weights).subspan(at, kChosen));
    CHECK(same_rows(out, row, alone, 0, 1));
    const auto expected = expected_row(backend, experts, one, &choices.ids[at], &choices.weights[at]);
    double worst = 0.0;
    double size = 0.0;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const double wanted = expected[static_cast<std::size_t>(i)];
      worst = std::max(worst, std::fabs(static_cast<double>(out.at(row, i)) - wanted));
      size = std::max(size, std::fabs(wanted));
    }
    CHECK(worst <= 1e-5 * size);
  }
}

}  // namespace

TEST_CASE("A row's experts give the sum of their plain products, whatever rows come with it", "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(2)) {
    for (const DType type : kKernelTypes) {
      INFO(level.level << ", " << dtype_info(type).name);
      const Experts experts(*level.backend, type);
      for (const std::int64_t rows : {1, 2, 5, 24})
        check_experts(*level.backend, experts, rows);
    }
  }
}

TEST_CASE("Many rows of experts", "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(3)) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kMXFP4}) {
      INFO(level.level << ", " << dtype_info(type).name);
      check_experts(*level.backend, Experts(*level.backend, type), 550);
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
