// EngineView: an engine's state as a status page shows it: its last steps, and which sequences hold the pool's blocks.
// The engine thread writes, any thread reads. Invariant: a step costs the engine one uncontended lock; sequences are
// listed only while the page is read, at most four times a second.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/thread_role.h"
#include "core/engine/figures/engine_stats.h"
#include "core/request/request.h"

namespace quire {

struct StepSummary {
  Clock::time_point ended{};
  float seconds = 0.0F;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  std::int32_t num_sequences = 0;
  std::array<float, kNumStepPhases> phase_seconds{};
};

struct SequenceView {
  std::string request_id;
  std::string key_name;
  std::int32_t choice = 0;
  bool is_running = false;
  std::int64_t num_tokens = 0;
  std::int64_t num_computed = 0;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_blocks = 0;
  std::int64_t num_shared_blocks = 0;  // blocks held by other sequences too
};

class EngineView {
 public:
  static constexpr std::size_t kNumSteps = 240;

  EngineView() { steps_.reserve(kNumSteps); }

  void add_step(const StepSummary& step) QUIRE_REQUIRES(kEngineThread);
  // are_any: the engine has sequences. When the last one ends, the list is updated at once, since an idle engine takes
  // no further step.
  bool wants_sequences(Clock::time_point now, bool are_any) const QUIRE_REQUIRES(kEngineThread);
  // num_shared_blocks: shared blocks of the pool, each counted once.
  void set_sequences(std::vector<SequenceView> sequences, std::int64_t num_shared_blocks, Clock::time_point now)
      QUIRE_REQUIRES(kEngineThread);

  struct Reading {
    std::vector<StepSummary> steps;  // oldest first
    std::vector<SequenceView> sequences;
    std::int64_t num_shared_blocks = 0;
  };
  // Any thread. The first reading after a pause has no sequences yet, unless the engine takes a step meanwhile.
  Reading read(Clock::time_point now);

 private:
  mutable std::mutex mutex_;
  std::vector<StepSummary> steps_;  // a ring
  std::size_t next_ = 0;
  std::vector<SequenceView> sequences_;
  std::int64_t num_shared_blocks_ = 0;
  Clock::time_point listed_{};
  Clock::time_point read_{};
};

}  // namespace quire
