// The operations of other families' layers against a scalar reference in double precision, on every level.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/kernels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

void check_close(float got, double expected) {
  CHECK(std::fabs(static_cast<double>(got) - expected) <= 2e-4 * (1.0 + std::fabs(expected)));
}

}  // namespace

// By hand: 2.0 is near 2.02 and 1.0 is not; below 2.02, 2.0 has 1.98 near it.
TEST_CASE("A sparse mixer weighs each choice among the logits near it", "[kernels][graph]") {
  const auto backend = std::move(level_backends(1).front().backend);
  Matrix logits(2, 4);
  const float values[] = {1.0F, 2.0F, 2.02F, 1.98F};
  const float equal[] = {0.0F, 0.0F, -1.0F, 0.0F};
  std::copy(values, values + 4, &logits.at(0, 0));
  std::copy(equal, equal + 4, &logits.at(1, 0));
  std::vector<std::int32_t> ids(4);
  std::vector<float> weights(4);
  const RouteOptions options{.gate = RouteOptions::Gate::kSparseMixer, .num_chosen = 2, .mixer_share = 0.0151F};
  backend->graph()->route(logits.view(), options, ids, weights);
  CHECK(ids == std::vector<std::int32_t>{2, 1, 0, 1});
  check_close(weights[0], 1.0 / (1.0 + std::exp(-0.02)));
  check_close(weights[1], 1.0 / (1.0 + std::exp(-0.02)));
  check_close(weights[2], 1.0 / 3.0);
  check_close(weights[3], 1.0 / 2.0);
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
