// DraftRounds: drafts that a model makes before a step: in each round one token for each sequence that takes part, as
// long as a round is worth its time. Engine thread only; no step is in flight during a round. Nothing is preempted for
// a draft.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/thread_role.h"
#include "core/draft/acceptance.h"
#include "core/draft/draft_input.h"
#include "core/draft/drafted_sequence.h"
#include "core/draft/likely_tokens.h"
#include "core/draft/model_rows.h"
#include "core/draft/time_model.h"
#include "core/executor/executor.h"
#include "core/executor/step_draws.h"
#include "core/kv/kv_cache.h"
#include "core/sched/scheduler.h"

namespace quire {

class DraftRounds {
 public:
  enum class Proposed : std::uint8_t { kNothing, kRefused, kDrafts };  // kRefused: the first round was not worth it

  // All must outlive it.
  DraftRounds(Executor& executor, const KvCache& kv, Scheduler& scheduler, const SchedulerOptions& options,
              std::span<const TokenId> end_of_generation);

  // The sequence is drafted in rounds from now on.
  void begin(DraftedSequence& sequence, bool is_first_choice);
  // Fills the `drafts` of running sequences. num_passes: steps submitted so far.
  Proposed propose(std::uint64_t num_passes, const TakeTurn& take_turn) QUIRE_REQUIRES(kEngineThread);
  // Call when the plan is submitted.
  void note_plan(const StepPlan& plan) {
    if (model_rows_ != nullptr) model_rows_->note_plan(plan);
  }
  // Results of a step, for sequences in rounds: its time, verified drafts, each token and the last token's row.
  void note_step(double seconds) { times_.note_step(seconds); }
  void note_verified(std::int64_t num_verified, std::int64_t num_accepted);
  void note_token(TokenId token) { likely_tokens_.note(token); }
  static void note_last_row(DraftedSequence& sequence, const EntryDraws& entry, std::int64_t logit_row,
                            std::uint64_t pass);

 private:
  void collect(std::uint64_t num_passes);
  void take_room();
  bool compute(bool is_first) QUIRE_REQUIRES(kEngineThread);

  Executor& executor_;
  Scheduler& scheduler_;
  const std::int32_t block_size_;
  const std::int64_t most_sequences_;
  const std::int64_t most_tokens_;
  const std::span<const TokenId> end_of_generation_;

  DraftInput input_;
  DraftTimeModel times_;
  MeanAcceptance acceptance_;
  LikelyTokens likely_tokens_;                  // counted over sequences that a model drafts for
  std::unique_ptr<DraftModelRows> model_rows_;  // null: no model with rows of its own drafts
  std::vector<DraftedSequence*> drafted_;       // scratch of propose()
  std::vector<DraftedSequence*> in_round_;      // sequences of the next round
  std::vector<DrawRow> draws_;
};

}  // namespace quire
