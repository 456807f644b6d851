// Step: one step, from its plan to the events that it sends. Engine thread only; reused, so that a steady step
// allocates nothing. Invariant: from its submission on, the plan, the input and the generations named here stay until
// it is done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/generation.h"
#include "core/engine/step_trace.h"
#include "core/executor/executor.h"
#include "core/executor/step_input.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_plan.h"

namespace quire {

// Purpose and results of a plan's entry. Choices forked in the step come after the plan's entries.
struct StepPart {
  Generation* generation = nullptr;
  WantedRows wanted{};
  std::int64_t begin = 0;         // position of the entry's first row
  std::int64_t end = 0;           // position after the last row of a known token
  std::int64_t num_drafts = 0;    // drafts, whose rows follow
  std::int64_t num_accepted = 0;  // accepted drafts
  std::int64_t first_index = 0;   // index of the first wanted row among the step's wanted rows of its kind
  bool is_last = false;           // the last row is the sequence's last token
  std::optional<std::size_t> draw = std::nullopt;  // its first draw
  std::size_t num_draws = 0;                       // draws of the last known token and of drafts
  std::size_t first_score = 0;                     // its first score
  std::size_t num_scores = 0;
  std::optional<std::size_t> forked_from = std::nullopt;  // the part of the first choice
  bool is_complete = false;                               // all rows of known tokens were computed
  bool has_news = false;                                  // its sink gets an event
};

struct Step {
  Step(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences, std::int64_t max_table_blocks,
       const WindowPool* windows = nullptr)
      : input(block_size, max_rows, max_sequences, max_table_blocks, windows) {
    plan.reserve(static_cast<std::size_t>(max_sequences));
    const auto most_parts = static_cast<std::size_t>(2 * max_sequences);  // each entry, and as many forked choices
    parts.reserve(most_parts);
    draws.reserve(most_parts + static_cast<std::size_t>(kMostDraftsOfStep));
    ended.reserve(2 * most_parts);  // generations of this step or the other one in flight
  }

  bool names(const Generation& generation) const {
    return std::ranges::any_of(parts, [&](const StepPart& part) { return part.generation == &generation; });
  }

  StepPlan plan;
  StepInput input;
  std::vector<StepPart> parts;
  std::vector<DrawRow> draws;
  std::vector<ScoreRow> scores;
  std::vector<std::vector<std::uint32_t>> masks;  // kept from step to step: the most that a step used
  std::size_t num_masks = 0;                      // masks used by this step's draws
  Ticket* ticket = nullptr;
  std::uint64_t pass = 0;                          // its number among submitted steps
  bool is_overlapped = false;                      // the next step is submitted before this one is finished
  std::vector<std::unique_ptr<Generation>> ended;  // ended generations that a step in flight refers to
  StepRecord record;
};

}  // namespace quire
