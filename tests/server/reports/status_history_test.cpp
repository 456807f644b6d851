// The status page's history: rates and percentiles between two samples, and the engine's internal state.
#include <catch2/catch.hpp>

#include <cmath>

#include "core/engine/figures/engine_view.h"
#include "server/ops/reports/status_history.h"

using namespace quire;

namespace {

const std::vector<double> kBounds = {0.1, 0.2, 0.4};

StatusHistory::Sample sample_of(const std::string& model, EngineStats stats, std::vector<double> first_token = {}) {
  first_token.resize(kBounds.size() + 1);
  return {model, stats, {kBounds, first_token}, {kBounds, std::vector<double>(kBounds.size() + 1)}};
}

}  // namespace

TEST_CASE("a latency's quantile is within its bucket, in proportion to the counts") {
  CHECK(latency_quantile({kBounds, {0, 10, 0, 0}}, 0.5) == Approx(0.15));
  CHECK(latency_quantile({kBounds, {5, 0, 5, 0}}, 0.5) == Approx(0.1));
  CHECK(latency_quantile({kBounds, {5, 0, 5, 0}}, 0.9) == Approx(0.36));
  CHECK(latency_quantile({kBounds, {0, 0, 0, 3}}, 0.5) == Approx(0.4));  // above the last bound: at least that
  CHECK(std::isnan(latency_quantile({kBounds, {0, 0, 0, 0}}, 0.5)));
}

TEST_CASE("a point of the history is what happened between two samples") {
  StatusHistory history;
  EngineStats stats;
  stats.generation_tokens = 100;
  stats.prompt_tokens = 1000;
  history.add(10.0, {sample_of("one", stats, {4, 0, 0, 0})});
  CHECK(history.points("one").empty());
  stats.generation_tokens = 150;
  stats.prompt_tokens = 1400;
  stats.prefix_cache_queries = 400;
  stats.prefix_cache_hits = 300;
  stats.num_running = 7;
  stats.phase_ns[static_cast<std::size_t>(StepPhase::kForward)] = 500'000'000;
  stats.phase_ns[static_cast<std::size_t>(StepPhase::kTurn)] = 900'000'000;  // waiting for another model is not work
  history.add(12.0, {sample_of("one", stats, {4, 10, 0, 0})});
  const auto points = history.points("one");
  REQUIRE(points.size() == 1);
  CHECK(points[0].time == 12.0);
  CHECK(points[0].output_tokens_s == Approx(25.0));
  CHECK(points[0].prompt_tokens_s == Approx(200.0));
  CHECK(points[0].hit_rate == Approx(0.75));
  CHECK(points[0].busy == Approx(0.25));
  CHECK(points[0].num_running == 7.0);
  CHECK(points[0].first_token_s[0] == Approx(0.15));
  CHECK(std::isnan(points[0].between_tokens_s[0]));
}

TEST_CASE("the history is bounded, and forgets a model that is gone") {
  StatusHistory history;
  for (std::size_t i = 0; i < StatusHistory::kNumPoints + 50; ++i)
    history.add(static_cast<double>(i), {sample_of("one", {}), sample_of("two", {})});
  const auto points = history.points("one");
  CHECK(points.size() == StatusHistory::kNumPoints);
  CHECK(points.back().time - points.front().time == static_cast<double>(StatusHistory::kNumPoints - 1));
  history.add(1e6, {sample_of("two", {})});
  CHECK(history.points("one").empty());
  CHECK_FALSE(history.points("two").empty());
}

TEST_CASE("an engine whose counters were reset does not count below zero") {
  StatusHistory history;
  EngineStats stats;
  stats.generation_tokens = 1000;
  history.add(1.0, {sample_of("one", stats, {9, 9, 9, 9})});
  stats.generation_tokens = 10;
  history.add(2.0, {sample_of("one", stats, {0, 1, 0, 0})});
  CHECK(history.points("one").front().output_tokens_s == Approx(10.0));
  CHECK(std::isnan(history.points("one").front().first_token_s[0]));
}

TEST_CASE("the view keeps the last steps in order and lists sequences only for a reader") {
  EngineView view;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < static_cast<int>(EngineView::kNumSteps) + 5; ++i)
    view.add_step({.ended = start, .num_decode_tokens = i});
  CHECK_FALSE(view.wants_sequences(start, true));
  const auto reading = view.read(start);
  REQUIRE(reading.steps.size() == EngineView::kNumSteps);
  CHECK(reading.steps.front().num_decode_tokens == 5);
  CHECK(reading.steps.back().num_decode_tokens == static_cast<int>(EngineView::kNumSteps) + 4);
  CHECK(view.wants_sequences(start, true));
  view.set_sequences({SequenceView{.request_id = "a", .key_name = ""}}, 3, start);
  CHECK_FALSE(view.wants_sequences(start + std::chrono::milliseconds(200), true));
  CHECK(view.wants_sequences(start + std::chrono::milliseconds(300), true));
  CHECK(view.wants_sequences(start + std::chrono::milliseconds(1), false));  // all have ended
  CHECK(view.read(start + std::chrono::seconds(1)).sequences.size() == 1);
  CHECK_FALSE(view.wants_sequences(start + std::chrono::seconds(60), true));
  CHECK(view.read(start + std::chrono::seconds(60)).sequences.empty());  // listed for an earlier reader
}
