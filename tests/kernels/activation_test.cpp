// Nonlinearities, gates, norms and sums of rows against double precision, on every level and for widths that are no
// whole number of vectors.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

double logistic(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double single_function(Nonlinearity kind, double x, const ActivationArgs& args) {
  const auto softened = [](float a) { return std::log1p(std::exp(static_cast<double>(a))); };
  switch (kind) {
    case Nonlinearity::kNone: return x;
    case Nonlinearity::kSilu: return x * logistic(x);
    case Nonlinearity::kGelu: return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Nonlinearity::kGeluOfError: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Nonlinearity::kQuickGelu: return x * logistic(1.702 * x);
    case Nonlinearity::kRelu: return std::max(x, 0.0);
    case Nonlinearity::kReluSquared: return std::pow(std::max(x, 0.0), 2.0);
    case Nonlinearity::kTanh: return std::tanh(x);
    case Nonlinearity::kSigmoid: return logistic(x);
    case Nonlinearity::kXielu: {
      const auto beta = static_cast<double>(args.beta);
      if (x > 0.0) return softened(args.alpha_p) * x * x + beta * x;
      const double grown = std::expm1(std::min(x, static_cast<double>(args.eps)));
      return (grown - x) * (beta + softened(args.alpha_n)) + beta * x;
    }
    case Nonlinearity::kSwigluOai: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double gated_function(double gate, double up, const ActivationArgs& args) {
  if (args.kind == Nonlinearity::kSwigluOai) {
    const double x = std::min(gate, 7.0);
    return x * logistic(1.702 * x) * (std::clamp(up, -7.0, 7.0) + 1.0);
  }
  const double value = single_function(args.kind, gate, args);
  if (args.limit == 0.0F) return value * up;
  const auto limit = static_cast<double>(args.limit);
  return std::min(value, limit) * std::clamp(up, -limit, limit);
}

// Values from far below to far above, among them zero and those where exponentials end.
Matrix wide_values(std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
  std::mt19937 random(seed);
  Matrix out = random_matrix(random, rows, cols, 4.0F);
  const float edges[] = {0.0F, -0.0F, 90.0F, -90.0F, 1e-8F, -1e-8F, 30.0F, -30.0F};
  for (std::int64_t i = 0; i < cols && i < std::ssize(edges); ++i)
    out.at(0, i) = edges[i];
  return out;
}

void check_rows(Matrix& got, const std::function<double(std::int64_t, std::int64_t)>& expected) {
  double worst = 0.0;
  for (std::int64_t row = 0; row < got.rows; ++row) {
    for (std::int64_t col = 0; col < got.cols; ++col) {
      const double wanted = expected(row, col);
      const double error = std::fabs(static_cast<double>(got.at(row, col)) - wanted) / (1.0 + std::fabs(wanted));
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
    }
  }
  CHECK(worst < 5e-6);
  CHECK(got.padding_untouched());
}

}  // namespace

TEST_CASE("Activations agree with double precision", "[kernels][graph]") {
  using enum Nonlinearity;
  for (const LevelBackend& level : level_backends(2)) {
    for (const Nonlinearity kind :
         {kNone, kSilu, kGelu, kGeluOfError, kRelu, kReluSquared, kSwigluOai, kXielu, kTanh, kSigmoid, kQuickGelu}) {
      for (const std::int64_t cols : {1, 37, 64}) {
        INFO(level.level << ", kind " << static_cast<int>(kind) << ", " << cols << " columns");
        ActivationArgs args{.kind = kind, .alpha_p = 0.8F, .alpha_n = 0.3F, .beta = 0.5F, .eps = -1e-6F};
        Matrix gate = wide_values(3, cols, 1);
        Matrix up = wide_values(3, cols, 2);
        Matrix out(3, cols);
        const auto gated = [&](std::int64_t row, std::int64_t col) {
          return gated_function(static_cast<double>(gate.at(row, col)), static_cast<double>(up.at(row, col)), args);
        };
        level.backend->graph()->activate(args, gate.view(), up.view(), out.view());
        check_rows(out, gated);
        if (kind == kSwigluOai) continue;
        args.limit = 1.5F;
        level.backend->graph()->activate(args, gate.view(), up.view(), out.view());
        check_rows(out, gated);
        level.backend->graph()->activate(args, gate.view(), {}, out.view());
        check_rows(out, [&](std::int64_t row, std::int64_t col) {
          return single_function(kind, static_cast<double>(gate.at(row, col)), args);
        });
      }
    }
  }
}

TEST_CASE("Gates multiply equal shares of the columns", "[kernels][graph]") {
  for (const LevelBackend& level : level_backends(2)) {
    for (const std::int64_t width : {1, 5, 64}) {
      INFO(level.level << ", " << width << " columns for each gate");
      Matrix gate = wide_values(3, 70, 3);
      Matrix x = wide_values(3, 70 * width, 4);
      Matrix out = x;
      level.backend->graph()->gate(Nonlinearity::kSigmoid, gate.view(), out.view());
      check_rows(out, [&](std::int64_t row, std::int64_t col) {
        return logistic(static_cast<double>(gate.at(row, col / width))) * static_cast<double>(x.at(row, col));
      });
    }
  }
}

TEST_CASE("Layer norms, caps and sums of rows agree with double precision", "[kernels][graph]") {
  std::mt19937 random(5);
  for (const LevelBackend& level : level_backends(2)) {
    for (const std::int64_t cols : {7, 64, 771}) {
      INFO(level.level << ", " << cols << " columns");
      Matrix x = random_matrix(random, 3, cols);
      const std::vector<float> weight = random_floats(random, cols);
      const std::vector<float> bias = random_floats(random, cols);
      GraphOps& graph = *level.backend->graph();
      Matrix out(3, cols);
      graph.layer_norm(x.view(), weight.data(), bias.data(), 1e-5F, out.view());
      check_rows(out, [&](std::int64_t row, std::int64_t col) {
        double mean = 0.0;
        double variance = 0.0;
        for (std::int64_t i = 0; i < cols; ++i)
          mean += static_cast<double>(x.at(row, i)) / static_cast<double>(cols);
        for (std::int64_t i = 0; i < cols; ++i)
          variance += std::pow(static_cast<double>(x.at(row, i)) - mean, 2.0) / static_cast<double>(cols);
        const auto at = static_cast<std::size_t>(col);
        return (static_cast<double>(x.at(row, col)) - mean) / std::sqrt(variance + 1e-5) *
                   static_cast<double>(weight[at]) +
               static_cast<double>(bias[at]);
      });
      Matrix sum = x;
      graph.add(x.view(), 0.5F, sum.view());
      check_rows(sum, [&](std::int64_t row, std::int64_t col) { return 1.5 * static_cast<double>(x.at(row, col)); });
      Matrix capped = x;
      graph.softcap(capped.view(), 0.7F);
      check_rows(capped, [&](std::int64_t row, std::int64_t col) {
        return 0.7 * std::tanh(static_cast<double>(x.at(row, col)) / 0.7);
      });
      Matrix scaled = x;
      const float factors[] = {2.0F, -1.0F, 0.25F};
      graph.scale_rows(scaled.view(), factors);
      graph.scale_columns(scaled.view(), weight.data());
      graph.scale(scaled.view(), 3.0F);
      check_rows(scaled, [&](std::int64_t row, std::int64_t col) {
        return 3.0 * static_cast<double>(factors[row]) * static_cast<double>(weight[static_cast<std::size_t>(col)]) *
               static_cast<double>(x.at(row, col));
      });
    }
  }
}
