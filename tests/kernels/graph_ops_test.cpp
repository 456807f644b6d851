// The operations of other families' layers against a scalar reference in double precision, on every level.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/routing.h"
#include "tests/kernels/levels/level_backends.h"
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

// Copy of a backend's choices, which its next route() overwrites.
struct Routed {
  Routed(Backend& backend, MatrixView logits, const RouteOptions& options) {
    const ExpertChoices choices = backend.graph()->route(logits, options);
    ids.assign(choices.ids, choices.ids + choices.count());
    weights.assign(choices.weights, choices.weights + choices.count());
  }
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Routes each row alone on the host: the same choices, and the same weights except for exponentials' last bits.
void check_route(Backend& backend, Matrix& logits, const RouteOptions& options) {
  const Routed all(backend, logits.view(), options);
  RouteRoom room;
  const auto chosen = static_cast<std::size_t>(options.num_chosen);
  std::vector<std::int32_t> ids(chosen);
  std::vector<float> weights(chosen);
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    INFO("row " << row);
    route_row({&logits.at(row, 0), static_cast<std::size_t>(logits.cols)}, options, ids.data(), weights.data(), room);
    const auto at = static_cast<std::ptrdiff_t>(chosen) * row;
    CHECK(std::equal(ids.begin(), ids.end(), all.ids.begin() + at));
    for (std::size_t n = 0; n < chosen; ++n)
      CHECK(all.weights[static_cast<std::size_t>(at) + n] == Approx(weights[n]).epsilon(2e-6));
    const Routed alone(backend, logits.rows_from(row, 1), options);
    CHECK(std::equal(alone.ids.begin(), alone.ids.end(), all.ids.begin() + at));
    CHECK(std::equal(alone.weights.begin(), alone.weights.end(), all.weights.begin() + at));
  }
}

}  // namespace

// Computed by hand: 2.0 is near 2.02 and 1.0 is not; below 2.02, 2.0 has 1.98 near it.
TEST_CASE("A sparse mixer weighs each choice among the logits near it", "[kernels][graph]") {
  const auto backend = std::move(level_backends(1).front().backend);
  Matrix logits(2, 4);
  const float values[] = {1.0F, 2.0F, 2.02F, 1.98F};
  const float equal[] = {0.0F, 0.0F, -1.0F, 0.0F};
  std::copy(values, values + 4, &logits.at(0, 0));
  std::copy(equal, equal + 4, &logits.at(1, 0));
  const RouteOptions options{.gate = RouteOptions::Gate::kSparseMixer, .num_chosen = 2, .mixer_share = 0.0151F};
  const auto [ids, weights] = Routed(*backend, logits.view(), options);
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
  RouteOptions options{.num_chosen = 2};
  const Routed tied(*backend, logits.view(), options);
  CHECK(tied.ids == std::vector<std::int32_t>{1, 2});  // a tie goes to the lower index
  CHECK(tied.weights[0] == tied.weights[1]);
  options.choice_bias = bias;
  options.gate = RouteOptions::Gate::kSigmoid;
  options.normalise = true;
  options.scale = 2.0F;
  const Routed biased(*backend, logits.view(), options);
  CHECK(biased.ids == std::vector<std::int32_t>{3, 1});
  const double sum = sigmoid(-1.0) + sigmoid(2.0);
  check_close(biased.weights[0], 2.0 * sigmoid(-1.0) / sum);
  check_close(biased.weights[1], 2.0 * sigmoid(2.0) / sum);
  options = {.gate = RouteOptions::Gate::kSigmoid, .num_chosen = 1, .num_groups = 2};
  const float group_bias[] = {0.9F, 0.0F, 0.0F, 0.0F};
  options.choice_bias = group_bias;
  CHECK(Routed(*backend, logits.view(), options).ids.front() == 0);
}

TEST_CASE("Every gate, with and without groups, biases and scales, routes as the host does", "[kernels][graph]") {
  std::mt19937 random(8);
  for (const LevelBackend& level : level_backends(2)) {
    for (const auto& [experts, groups, kept, chosen] :
         {std::array<std::int64_t, 4>{6, 1, 1, 2}, {64, 8, 4, 6}, {70, 1, 1, 70}, {72, 36, 3, 5}, {33, 33, 9, 4}}) {
      for (int gate = 0; gate <= static_cast<int>(RouteOptions::Gate::kSparseMixer); ++gate) {
        for (const bool with_all : {false, true}) {
          INFO(level.level << ", " << experts << " experts, gate " << gate << (with_all ? " with all" : ""));
          Matrix logits = random_matrix(random, 5, experts, 2.0F);
          const std::vector<float> bias = random_floats(random, experts);
          const std::vector<float> scales = random_floats(random, experts);
          check_route(*level.backend, logits,
                      {.gate = static_cast<RouteOptions::Gate>(gate),
                       .num_chosen = chosen,
                       .num_groups = groups,
                       .num_groups_chosen = kept,
                       .normalise = with_all,
                       .scale = with_all ? 2.5F : 1.0F,
                       .mixer_share = 0.2F,
                       .choice_bias = with_all ? bias.data() : nullptr,
                       .expert_scale = with_all ? scales.data() : nullptr});
        }
      }
    }
  }
}
