// StepTrace: records each step of the engine while a trace is active. start() and stop(): Any thread. Others: Engine
// thread only. Without a trace, a step costs one atomic read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/thread_role.h"
#include "core/engine/figures/engine_stats.h"
#include "core/request/request.h"
#include "core/sched/step_plan.h"

namespace quire {

struct StepRecord {
  struct Entry {
    std::string request_id;
    std::int32_t choice = 0;
    std::int64_t num_tokens = 0;  // computed in this step
    bool is_prompt = false;
  };
  Clock::time_point began{};
  Clock::time_point submitted{};  // time of submission to the executor
  std::array<Clock::duration, kNumStepPhases> phases{};
  std::int64_t num_tokens = 0;
  std::int64_t num_prompt_tokens = 0;  // prompt tokens among num_tokens
  std::int64_t num_sequences = 0;
  StepTerms terms{};           // the work that the step computed
  double seconds = 0.0;        // time of computing and moves; 0: the step was cut short
  std::vector<Entry> entries;  // only while tracing
};

class StepTrace {
 public:
  // Discards earlier records and starts to record, up to `max_steps`. False if a recording is in progress.
  bool start(std::size_t max_steps) {
    const std::lock_guard lock(mutex_);
    if (active_.load(std::memory_order_relaxed)) return false;
    records_.clear();
    max_steps_ = max_steps;
    active_.store(true, std::memory_order_release);
    return true;
  }
  std::vector<StepRecord> stop() {
    const std::lock_guard lock(mutex_);
    active_.store(false, std::memory_order_release);
    return std::move(records_);
  }
  bool active() const { return active_.load(std::memory_order_acquire); }
  // A step is left out if there is no memory for its record.
  void note_entries(StepRecord& record, const StepPlan& plan) const noexcept QUIRE_REQUIRES(kEngineThread);
  void add(StepRecord& record) noexcept QUIRE_REQUIRES(kEngineThread);

 private:
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  std::size_t max_steps_ = 0;
  std::vector<StepRecord> records_;
};

}  // namespace quire
