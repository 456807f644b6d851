// DraftModelRows: the rows of each block that a drafting model has computed, and catching up: computing those that it
// lacks of a sequence, as far as that is worth its time. Engine thread only. A step computes rows of the large model
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/thread_role.h"
#include "core/draft/acceptance.h"
#include "core/draft/draft_input.h"
#include "core/draft/drafted_rows.h"
#include "core/draft/drafted_sequence.h"
#include "core/draft/time_model.h"
#include "core/executor/executor.h"
#include "core/kv/kv_cache.h"
#include "core/sched/policy/drafts.h"

namespace quire {

// Takes the turn to compute, unless the step has it already. Called before each work of drafting.
using TakeTurn = std::function<void()>;

class DraftModelRows {
 public:
  // All must outlive it. input: scratch.
  DraftModelRows(Executor& executor, const KvCache& kv, DraftInput& input, DraftTimeModel& times)
      : executor_(executor), kv_(kv), input_(input), times_(times), rows_(kv.pool().num_blocks(), kv.block_size()) {}

  // Blocks that the plan moves, copies or writes lose their rows, unless those move along.
  void note_plan(const StepPlan& plan);
  // Rows of the last rounds whose tokens were accepted become rows of the sequence.
  void settle(DraftedSequence& sequence);
  // Keeps the sequences whose lacking rows fit into a first round. For others, if a round over all would be worth its
  // time, computes some of the lacking rows: about as many as take as long as a step.
  void catch_up(std::vector<DraftedSequence*>& sequences, const DraftBudget& budget, const MeanAcceptance& acceptance,
                const TakeTurn& take_turn) QUIRE_REQUIRES(kEngineThread);

 private:
  bool lacks_rows(const DraftedSequence& sequence) const;
  bool may_catch_up(const DraftedSequence& sequence, const DraftBudget& budget, const MeanAcceptance& acceptance) const;
  double compute_lacking(DraftedSequence& sequence, double seconds) QUIRE_REQUIRES(kEngineThread);

  Executor& executor_;
  const KvCache& kv_;
  DraftInput& input_;
  DraftTimeModel& times_;
  DraftedRows rows_;
};

}  // namespace quire
