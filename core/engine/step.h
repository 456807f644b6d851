// Step: one step, from its plan to the events that it sends. Steps: two Step objects, used alternately. Engine thread
// only; reused, so that a steady step allocates nothing. Invariant: from its submission on, the plan, the input and the
// generations named here stay until it is done.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/figures/step_trace.h"
#include "core/engine/generation.h"
#include "core/executor/executor.h"
#include "core/executor/step_draws.h"
#include "core/executor/step_input.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/step_plan.h"

namespace quire {

// A plan's entry as the step computes it: its wanted rows and its results. Choices that the step forks come after the
// entries.
struct StepPart {
  Generation* generation = nullptr;
  EntryDraws entry{};
  WantedRows wanted{};
  std::int64_t first_index = 0;  // index of the first wanted row among the step's wanted rows of its kind
  bool is_last = false;          // the known tokens of the entry include the sequence's last one
  std::size_t first_score = 0;   // index of its first score
  std::size_t num_scores = 0;
  std::optional<std::size_t> forked_from = std::nullopt;  // index of the first choice's StepPart
  bool is_complete = false;                               // all rows of known tokens were computed
  bool has_news = false;                                  // its sink gets an event
};

struct Step {
  Step(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences, std::int64_t max_table_blocks,
       std::int64_t vocab_size, const WindowPool* windows = nullptr)
      : input(block_size, max_rows, max_sequences, max_table_blocks, windows),
        draws(most_parts(max_sequences) + static_cast<std::size_t>(kMostDraftsOfStep), vocab_size) {
    plan.reserve(static_cast<std::size_t>(max_sequences));
    parts.reserve(most_parts(max_sequences));
    ended.reserve(2 * most_parts(max_sequences));  // generations of this step or the other one in flight
  }

  // Each entry is a part, and so are as many forked choices.
  static std::size_t most_parts(std::int64_t max_sequences) { return static_cast<std::size_t>(2 * max_sequences); }

  bool names(const Generation& generation) const {
    return std::ranges::any_of(parts, [&](const StepPart& part) { return part.generation == &generation; });
  }

  StepPlan plan;
  StepInput input;
  std::vector<StepPart> parts;
  StepDraws draws;
  Ticket* ticket = nullptr;
  std::uint64_t pass = 0;                          // its number among submitted steps
  bool is_overlapped = false;                      // the next step is submitted before this one is finished
  std::vector<std::unique_ptr<Generation>> ended;  // ended generations that a step in flight refers to
  StepRecord record;
};

// Two steps: the next is planned while the other may be in flight.
struct Steps {
  // The step to plan while `before` may be in flight.
  Step& beside(const Step* before) { return both[before == both.data() ? 1 : 0]; }
  // Keeps an ended generation that a step in flight refers to, until the latest step is done.
  void keep(std::unique_ptr<Generation>& ended) {
    const auto names = [&](const Step& step) { return step.names(*ended); };
    if (latest != nullptr && std::ranges::any_of(both, names)) latest->ended.push_back(std::move(ended));
  }

  std::array<Step, 2> both;
  Step* latest = nullptr;  // the last submitted step that is not done
};

}  // namespace quire
