// StepMeter: measures steps: the time of each phase, the time of the executor, tokens and their rate. Engine thread
// only. With two steps in flight each step has its own phase times, and its seconds begin when the previous step ends.
#pragma once

#include <cstdint>
#include <optional>

#include "core/engine/figures/engine_stats.h"
#include "core/engine/figures/engine_view.h"
#include "core/engine/figures/step_trace.h"
#include "core/engine/request_queue.h"

namespace quire {

class StepMeter {
 public:
  void begin(StepRecord& record);
  // Assigns the time since the last call to this phase.
  void end_phase(StepRecord& record, StepPhase phase);
  void note_submitted(StepRecord& record) { record.submitted = last_; }
  // Notes that the executor is done; returns the seconds that it took.
  double note_done(const StepRecord& record);
  void note_started(std::int64_t num_prompt_tokens);
  // A step computed num_tokens rows and generated num_generated tokens.
  void count(std::int64_t num_tokens, std::int64_t num_generated);
  // Summary of the step whose results were sent last.
  StepSummary summary(const StepRecord& record) const;
  // Notes that the step's results are sent. Once in a while returns the rate at which waiting requests start.
  std::optional<ServiceRate> finish(const StepRecord& record);
  void report(EngineStats& stats) const;

 private:
  std::optional<ServiceRate> look_at_rate();

  struct Window {
    double busy_s = 0.0;  // time in steps
    std::uint64_t num_tokens = 0;
    std::uint64_t num_started = 0;
    std::uint64_t num_prompt_tokens = 0;
  };
  StepCounts counts_;
  Window window_;     // since the last look at the rate
  ServiceRate rate_;  // rate of starting waiting requests
  Clock::time_point last_{};
  Clock::time_point last_done_{};
  Clock::time_point last_finished_{};
};

}  // namespace quire
