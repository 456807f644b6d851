// A fleet of simulated replicas under a trace: the engine's own Scheduler, BlockPool and KvCache, a clock that jumps
// from step to step, and a price for each step instead of a model. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_cost.h"
#include "core/sim/distribution.h"
#include "core/sim/step_fit.h"
#include "core/sim/trace.h"

namespace quire::sim {

// "base=8,stream=0.3,prompt=1,context=0.05,prompt_context=0.1", milliseconds; absent terms keep their default.
Result<StepPrice> parse_price(const std::string& text);

enum class Route { kRoundRobin, kLeastLoaded, kPrefix };

// The defaults are a daemon's, except that there is no target between tokens.
struct SimOptions {
  SchedulerOptions scheduler{.max_step_time_ms = SchedulerOptions::kAutoStepTime};
  std::int64_t num_blocks = 10'000;  // per replica; 0: as many as the trace could ever need
  std::int32_t block_size = 16;
  bool prefix_caching = true;
  StepPrice price{.fixed = 0.008, .stream = 0.0003, .prompt_token = 0.001, .stream_ktoken = 0.00005};
  StepScatter scatter{};              // factors of measured steps; empty: each step takes its price
  bool can_end_early = true;          // a step alone ends between two slices when a request arrives, as on a CPU
  std::int64_t num_states = 0;        // running states and snapshots of a recurrent model, per replica; 0: none
  std::int64_t window_tokens = 0;     // window of most layers; 0: none
  std::int64_t num_window_parts = 0;  // window parts per replica; 0: as many as blocks
  std::int64_t tier_blocks = 0;       // blocks in a tier below the pool per replica, host memory or disk; 0: none
  double tier_block_ms = 0.05;        // time to move a block in either direction
  std::int64_t shared_blocks = 0;     // blocks in a store shared by all replicas; 0: none
  double shared_block_ms = 0.5;       // transfer of a block to or from the store, one at a time per replica
  double shared_latency_ms = 1.0;     // round trip of a question to the store
  std::int32_t max_drafts = 0;        // per sequence and step; 0: none. Not beside states, as in the engine
  double draft_acceptance = 0.7;      // acceptance of a draft if the drafts before it were accepted
  std::int64_t media_rows = 16'384;   // rows of encoded images that a replica remembers
  std::int32_t num_replicas = 1;
  std::int32_t steps_at_once = 0;         // steps at full speed on a machine that all replicas share; 0: a machine each
  std::int32_t num_prefill_replicas = 0;  // replicas that compute prompts for the others, through the store
  Route route = Route::kRoundRobin;
  bool keeps_steps = false;  // the report lists them
};

// The state of the fleet at one time.
struct TimelinePoint {
  double time_s;
  double blocks_used;  // share of all blocks, 0 to 1
  double blocks_cached;
  double num_running;
  double num_waiting;
};

// The batch of one step of a replica.
struct SimStep {
  double began_s = 0.0;
  double seconds = 0.0;
  struct Entry {
    std::int64_t request;     // its number in the trace
    std::int64_t num_tokens;  // tokens computed
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
};

struct KeyShare {
  std::int64_t num_requests = 0;
  std::int64_t num_tokens = 0;  // computed tokens: uncached prompt and output
};

struct SimReport {
  std::int64_t num_requests = 0;
  std::int64_t num_refused = 0;  // requests that could never fit
  double duration_s = 0.0;       // simulated seconds until the last token
  std::int64_t num_steps = 0;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_prompt_blocks = 0;  // a prompt's last block counts as whole
  std::int64_t num_cached_blocks = 0;
  std::int64_t num_output_tokens = 0;
  std::int64_t num_computed_tokens = 0;
  std::int64_t num_images = 0;
  std::int64_t num_images_encoded = 0;
  double encoder_s = 0.0;                // summed over the replicas
  std::int64_t num_draft_tokens = 0;     // verified drafts
  std::int64_t num_accepted_tokens = 0;  // accepted drafts
  std::int64_t num_preemptions = 0;
  std::int64_t num_swaps = 0;            // preemptions that moved their blocks to the tier below
  std::int64_t num_restored_blocks = 0;  // from the tier below
  std::int64_t num_shared_writes = 0;    // blocks written to the shared store
  std::int64_t num_shared_reads = 0;
  std::int64_t num_handed_over = 0;        // requests moved from their prompt's replica to their answer's
  std::int64_t num_recomputed_tokens = 0;  // prompt tokens that the answer's replica computed again
  std::int64_t num_blocks = 0;             // total of the fleet
  std::int64_t peak_blocks = 0;
  double busy_s = 0.0;  // summed over the replicas
  Distribution ttft_s;
  Distribution itl_s;
  Distribution e2e_s;
  Distribution queue_s;
  std::map<std::string, KeyShare> keys;
  std::vector<TimelinePoint> timeline;  // at most a few hundred points
  std::vector<SimStep> steps;           // if requested

  double output_tokens_per_s() const {
    return duration_s > 0 ? static_cast<double>(num_output_tokens) / duration_s : 0.0;
  }
  double hit_rate() const;        // share of prompt tokens
  double block_hit_rate() const;  // share of prompt blocks
  double fairness() const;        // Jain's index over the keys' tokens: 1 is equal
};

// Returns an error if the options are contradictory.
Result<SimReport> simulate(const SimOptions& options, TraceSource& trace);

}  // namespace quire::sim
