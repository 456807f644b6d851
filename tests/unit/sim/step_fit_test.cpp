#include "core/sim/step_fit.h"

#include <catch2/catch.hpp>
#include <vector>

#include "core/sim/simulation.h"

using namespace quire;
using namespace quire::sim;

namespace {

// A request each second, of 100 prompt tokens and five of output.
class EachSecond final : public TraceSource {
 public:
  explicit EachSecond(int num_requests) : num_left_(num_requests) {}
  bool next(TraceRequest& request) override {
    if (num_left_-- == 0) return false;
    request.arrival_s = now_s_++;
    request.num_prompt_tokens = 100;
    request.num_output_tokens = 5;
    return true;
  }

 private:
  int num_left_;
  double now_s_ = 0.0;
};

// Percentiles come from a histogram.
Approx near(double seconds) {
  return Approx(seconds).epsilon(0.01);
}

}  // namespace

TEST_CASE("a price is found again from the steps it makes, and no part of it is below zero", "[sim]") {
  const StepPrice price{
      .fixed = 5e-3, .stream = 4e-4, .prompt_token = 9e-4, .stream_ktoken = 7e-5, .prompt_ktoken = 2e-5};
  std::vector<MeasuredStep> steps;
  for (const double streams : {0.0, 1.0, 8.0, 32.0}) {
    for (const double context : {0.1, 2.0}) {
      for (const double chunk : {1.0, 64.0, 512.0}) {
        const StepTerms terms{streams, chunk, streams * context, chunk * context};
        steps.push_back({terms, price.seconds(terms)});
      }
    }
  }
  const auto fitted = fit_price(steps);
  REQUIRE(fitted.has_value());
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    CHECK(fitted->price.vector()[i] == Approx(price.vector()[i]).epsilon(1e-6));
  CHECK(fitted->mean_error < 1e-9);
  for (MeasuredStep& step : steps)
    step.seconds = 0.02 - 1e-4 * step.terms.num_streams;  // streams that make a step faster: noise, not a price
  const auto flat = fit_price(steps);
  REQUIRE(flat.has_value());
  CHECK(flat->price.stream == 0.0);
  CHECK(flat->price.stream_ktoken >= 0.0);
  CHECK_FALSE(fit_price({}));
  CHECK_FALSE(fit_price({{{.num_streams = 1.0}, 0.0}}));
  const auto again = parse_price(to_string(price));
  REQUIRE(again.has_value());
  CHECK(again->prompt_ktoken == Approx(price.prompt_ktoken));
}

TEST_CASE("steps scatter around their price by kind, in the order in which they were measured", "[sim]") {
  const StepPrice price{.fixed = 0.01, .prompt_token = 1e-3};
  const StepTerms streams{.num_streams = 2.0};
  const StepTerms prompt{.num_streams = 1.0, .num_prompt_tokens = 90.0};
  const StepScatter scatter = scatter_of({{streams, 0.02}, {prompt, 0.3}, {streams, 0.01}, {prompt, 0.05}}, price);
  CHECK(scatter.streams == std::vector<double>{2.0, 1.0});
  REQUIRE(scatter.prompts.size() == 2);
  CHECK(scatter.prompts[0] == Approx(3.0));
  CHECK(scatter.prompts[1] == Approx(0.5));
}

TEST_CASE("simulated steps take the time beyond their price that measured ones took", "[sim]") {
  SimOptions options;
  options.price = {.fixed = 0.01, .stream = 0.0, .prompt_token = 1e-3};
  const auto simulated = [&](int num_requests) {
    EachSecond trace(num_requests);
    auto report = simulate(options, trace);
    REQUIRE(report.has_value());
    CHECK(report->num_output_tokens == 5 * num_requests);
    return *std::move(report);
  };
  const SimReport plain = simulated(1);
  CHECK(plain.ttft_s.percentile(50) == near(0.11));
  CHECK(plain.itl_s.percentile(99) == near(0.01));

  options.scatter = {.streams = {1.0, 2.0, 5.0, 1.0}, .prompts = {3.0}};
  const SimReport scattered = simulated(1);
  CHECK(scattered.ttft_s.percentile(50) == near(0.33));
  CHECK(scattered.itl_s.percentile(99) == near(0.05));
  CHECK(scattered.itl_s.mean() == Approx(0.09 / 4));

  SECTION("each replica has a part of its own, so that they are not slow at the same time") {
    options.num_replicas = 2;
    options.scatter = {.streams = {1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0}, .prompts = {1.0, 7.0}};
    const SimReport both = simulated(2);
    CHECK(both.itl_s.mean() == Approx(0.025));
    CHECK(both.ttft_s.percentile(1) == near(0.11));
    CHECK(both.ttft_s.percentile(99) == near(0.77));
  }
  SECTION("after the last measured step the list starts again") {
    options.scatter = {.streams = {3.0}, .prompts = {2.0}};
    const SimReport again = simulated(4);
    CHECK(again.ttft_s.mean() == Approx(0.22));
    CHECK(again.itl_s.mean() == Approx(0.03));
  }
}
