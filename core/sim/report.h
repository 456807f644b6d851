// Results of simulations for people and programs: a table, JSON, and one self-contained HTML page. Any thread; pure.
#pragma once

#include <string>
#include <vector>

#include "core/sim/simulation.h"

namespace quire::sim {

struct SimCase {
  std::string name;  // options that set the case apart: "num_blocks=4000 max_num_seqs=64"
  SimOptions options;
  SimReport report;
};

std::string to_table(const std::vector<SimCase>& cases);
std::string to_json(const std::vector<SimCase>& cases);
std::string to_html(const std::vector<SimCase>& cases, const std::string& title);

// The cases of a sweep: every combination of "name=value,value,..." items over `base`. Names: num_blocks, block_size,
// max_num_seqs, max_num_batched_tokens, replicas, policy, route, target_itl_ms, max_step_time_ms (or auto),
// can_end_early, num_states, window_tokens, num_window_parts, prefix_caching, prefix_aware, preemption, tier_blocks,
// tier_block_ms, shared_blocks, shared_block_ms, shared_latency_ms, max_drafts, draft_acceptance, media_rows. Other
// names are an error.
Result<std::vector<SimCase>> make_cases(const SimOptions& base, const std::vector<std::string>& sweep);

}  // namespace quire::sim
