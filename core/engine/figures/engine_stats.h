// EngineStats: the engine's counters for other threads. The engine thread writes, any thread reads, no thread waits:
// each figure is exact; two figures of a snapshot may be one step apart.
#pragma once

#include <array>
#include <cstdint>

#include "core/kv/tiers/shared_store.h"
#include "core/request/speculation_options.h"

namespace quire {

// Upper bounds of the buckets of tokens per step; one more bucket holds larger steps.
inline constexpr std::array<std::int64_t, 15> kIterationTokenBounds = {1,   2,   4,    8,    16,   32,   64,   128,
                                                                       256, 512, 1024, 2048, 4096, 8192, 16384};

// Phases of a step, in order.
enum class StepPhase { kSchedule, kTurn, kInput, kForward, kSample, kEmit };
inline constexpr std::size_t kNumStepPhases = 6;
inline constexpr std::array<const char*, kNumStepPhases> kStepPhaseNames = {"schedule", "turn",   "input",
                                                                            "forward",  "sample", "emit"};
// Upper bounds in seconds of the buckets of a step's time; one more bucket holds longer steps.
inline constexpr std::array<double, 14> kStepTimeBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                           0.1,    0.25,  0.5,    1.0,   2.5,  5.0,   10.0};
// Upper bounds for the time of a single phase, most of which are much shorter.
inline constexpr std::array<double, 14> kPhaseTimeBounds = {0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                            0.025,   0.05,   0.1,    0.25,  0.5,    1.0,   5.0};

// Steps since the start, as StepMeter counts them.
struct StepCounts {
  std::uint64_t num_steps = 0;
  std::uint64_t prompt_tokens = 0;    // prompt tokens of started requests, cached ones included
  std::uint64_t computed_tokens = 0;  // rows that went through the model
  std::uint64_t generation_tokens = 0;
  std::array<std::uint64_t, kIterationTokenBounds.size() + 1> iteration_tokens{};  // steps by number of tokens
  std::array<std::uint64_t, kStepTimeBounds.size() + 1> step_times{};              // steps by their time
  std::array<std::uint64_t, kNumStepPhases> phase_ns{};  // time spent in each phase of all steps
  std::array<std::array<std::uint64_t, kPhaseTimeBounds.size() + 1>, kNumStepPhases> phase_times{};  // steps by time
  double tokens_per_second = 0.0;  // prompt and generated tokens, over recent time with work
};

struct EngineStats : StepCounts {
  // Gauges.
  std::int64_t num_running = 0;  // sequences
  std::int64_t num_waiting = 0;  // requests that have not started, and preempted sequences
  std::int64_t num_blocks = 0;
  std::int64_t num_blocks_used = 0;    // referenced by a sequence
  std::int64_t num_blocks_cached = 0;  // kept for their content, evicted when room is needed
  std::int64_t num_blocks_used_peak = 0;
  std::uint64_t num_blocks_named = 0;  // full blocks in the pool, which are found by their content
  std::uint64_t num_event_losses = 0;  // times that changes of named blocks were lost on their way to subscribers
  std::uint64_t names_digest = 0;      // exclusive or of the named blocks' hashes
  // Window parts; 0: the model has none, or its window layers keep every token.
  std::int64_t num_parts = 0;
  std::int64_t num_parts_used = 0;  // within a sequence's window
  std::int64_t num_parts_cached = 0;
  std::int64_t num_parts_used_peak = 0;
  // Bytes of a device with memory of its own, sampled once a second; 0: the model is on the processor.
  std::uint64_t device_memory = 0;
  std::uint64_t device_memory_used = 0;   // use by other processes included
  std::int64_t most_steps_in_flight = 0;  // on the device
  // Bytes of the tiers below the pool; 0: no such tier.
  std::int64_t host_tier_bytes = 0;
  std::int64_t host_tier_bytes_used = 0;
  std::int64_t disk_tier_bytes = 0;
  std::int64_t disk_tier_bytes_used = 0;
  std::uint64_t has_shared_store = 0;  // 1: the engine has one
  SharedStoreStats shared_store;
  double predicted_step_s = 0.0;    // expected time of the running step; 0: not yet known
  std::uint64_t awaits_others = 0;  // 1: all work waits for another engine's step, or for the disk

  // Counters since start.
  std::uint64_t num_plans = 0;             // plans carried out: steps, and plans that move blocks alone
  std::uint64_t prefix_cache_queries = 0;  // prompt tokens looked up
  std::uint64_t prefix_cache_hits = 0;     // looked-up tokens that were cached
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_swaps = 0;         // preemptions whose blocks went to the host tier instead of being computed again
  std::uint64_t num_drafts = 0;        // verifications of a sequence's drafts
  std::uint64_t num_draft_tokens = 0;  // verified draft tokens
  std::uint64_t num_accepted_tokens = 0;                                    // accepted draft tokens
  std::array<std::uint64_t, kMostDraftsOfSequence> accepted_by_position{};  // by place among the drafts
  std::uint64_t num_blocks_copied = 0;                                      // copy-on-write
  std::uint64_t num_media_encoded = 0;                                      // pieces
  std::uint64_t num_media_found = 0;                                        // pieces whose rows were cached
  std::uint64_t encoder_ns = 0;                                             // time spent encoding
  std::uint64_t num_blocks_restored = 0;                                    // from a tier below
};

}  // namespace quire
