#include "core/engine/figures/step_meter.h"

#include <algorithm>

namespace quire {

namespace {

constexpr double kRateWindow = 1.0;  // seconds of work between two looks at the service rate
constexpr double kRateWeight = 0.3;  // weight of the newest look

template <class Bounds, class Value>
std::size_t bucket_of(const Bounds& bounds, Value value) {
  return static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

double seconds_of(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void StepMeter::begin(StepRecord& record) {
  record.phases.fill({});
  record.began = last_ = Clock::now();
}

void StepMeter::end_phase(StepRecord& record, StepPhase phase) {
  const Clock::time_point now = Clock::now();
  record.phases[static_cast<std::size_t>(phase)] += now - last_;
  last_ = now;
}

double StepMeter::note_done(const StepRecord& record) {
  const Clock::time_point from = std::max(record.submitted, last_done_);
  last_done_ = last_;
  return seconds_of(last_ - from);
}

void StepMeter::note_started(std::int64_t num_prompt_tokens) {
  counts_.prompt_tokens += static_cast<std::uint64_t>(num_prompt_tokens);
  ++window_.num_started;
  window_.num_prompt_tokens += static_cast<std::uint64_t>(num_prompt_tokens);
}

void StepMeter::count(std::int64_t num_tokens, std::int64_t num_generated) {
  counts_.generation_tokens += static_cast<std::uint64_t>(num_generated);
  ++counts_.num_steps;
  counts_.computed_tokens += static_cast<std::uint64_t>(num_tokens);
  window_.num_tokens += static_cast<std::uint64_t>(num_tokens);
  ++counts_.iteration_tokens[bucket_of(kIterationTokenBounds, num_tokens)];
}

std::optional<ServiceRate> StepMeter::finish(const StepRecord& record) {
  for (std::size_t i = 0; i < kNumStepPhases; ++i) {
    const Clock::duration time = record.phases[i];
    counts_.phase_ns[i] +=
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    ++counts_.phase_times[i][bucket_of(kPhaseTimeBounds, seconds_of(time))];
  }
  ++counts_.step_times[bucket_of(kStepTimeBounds, seconds_of(last_ - record.began))];
  window_.busy_s += seconds_of(last_ - std::max(record.submitted, last_finished_));
  last_finished_ = last_;
  if (window_.busy_s < kRateWindow) return std::nullopt;
  return look_at_rate();
}

StepSummary StepMeter::summary(const StepRecord& record) const {
  StepSummary summary{.ended = last_,
                      .seconds = static_cast<float>(seconds_of(last_ - record.began)),
                      .num_prompt_tokens = static_cast<std::int32_t>(record.num_prompt_tokens),
                      .num_decode_tokens = static_cast<std::int32_t>(record.num_tokens - record.num_prompt_tokens),
                      .num_sequences = static_cast<std::int32_t>(record.num_sequences)};
  for (std::size_t i = 0; i < kNumStepPhases; ++i)
    summary.phase_seconds[i] = static_cast<float>(seconds_of(record.phases[i]));
  return summary;
}

// Measured over time with work: an idle night does not make the next morning's clients wait.
std::optional<ServiceRate> StepMeter::look_at_rate() {
  const auto blend = [&](double& rate, std::uint64_t count) {
    rate += kRateWeight * (static_cast<double>(count) / window_.busy_s - rate);
  };
  if (counts_.tokens_per_second == 0.0) {  // the first look has no rate to blend with
    counts_.tokens_per_second = static_cast<double>(window_.num_tokens) / window_.busy_s;
    rate_ = {static_cast<double>(window_.num_started) / window_.busy_s,
             static_cast<double>(window_.num_prompt_tokens) / window_.busy_s};
  }
  blend(counts_.tokens_per_second, window_.num_tokens);
  blend(rate_.requests_per_second, window_.num_started);
  blend(rate_.prompt_tokens_per_second, window_.num_prompt_tokens);
  window_ = {};
  return rate_;
}

void StepMeter::report(EngineStats& stats) const {
  static_cast<StepCounts&>(stats) = counts_;
}

}  // namespace quire
