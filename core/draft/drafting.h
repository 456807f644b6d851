// Drafting: all drafted tokens of an engine: proposes them before a step is planned, draws the tokens that verify them
// in the step, and learns from those that were accepted (README.md). Engine thread only. Invariant: drafts change the
// speed of an answer, never its tokens. An engine without a drafting method has one that proposes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_role.h"
#include "core/draft/drafted_sequence.h"
#include "core/draft/drafter.h"
#include "core/draft/rounds.h"
#include "core/executor/executor.h"
#include "core/executor/step_draws.h"
#include "core/kv/kv_cache.h"
#include "core/request/speculation_options.h"
#include "core/sched/scheduler.h"

namespace quire {

struct DraftingOptions {
  SpeculationOptions speculation;  // default of requests without one
  DrafterFactory make_drafter;     // replaces the methods' own drafters; empty: it does not
};

class Drafting {
 public:
  struct Counts {
    std::uint64_t num_verifications = 0;  // of a sequence's drafts
    std::uint64_t num_verified = 0;
    std::uint64_t num_accepted = 0;
    std::array<std::uint64_t, kMostDraftsOfSequence> accepted_by_position{};  // by place among the drafts
  };

  // All must outlive it. Throws StartupError if the model drafts and its executor computes no drafts.
  Drafting(Executor& executor, const KvCache& kv, Scheduler& scheduler, const SchedulerOptions& scheduler_options,
           DraftingOptions options, std::span<const TokenId> end_of_generation);

  // Chooses the method for a new sequence.
  void begin(DraftedSequence& sequence, std::int32_t choice);
  // Whether the step in flight is finished before the next one is planned, because drafts need the token that it draws.
  // Finishing first pays if the expected accepted drafts exceed the tokens lost by giving up the overlap.
  bool pays_to_wait();
  // Fills the `drafts` of running sequences while no step is in flight; false if there are none.
  bool propose(const TakeTurn& take_turn) QUIRE_REQUIRES(kEngineThread);
  // Call for each plan that was offered drafts: those that it has no room to verify cost time all the same.
  void note_planned(const StepPlan& plan);
  // Call when a plan is submitted; returns its number among submitted plans.
  std::uint64_t note_submitted(const StepPlan& plan);

  // Verification. add_draws(): after the draw of the entry's last known token, adds those after its drafts. verify():
  // counts the accepted drafts in `entry` and `computed`.
  void add_draws(DraftedSequence& sequence, EntryDraws& entry, StepDraws& draws);
  void verify(DraftedSequence& sequence, EntryDraws& entry, EntryOutput& computed, std::span<const DrawnToken> drawn);
  // Results of a step: each drawn token, the rows of an entry whose draws are taken, the step's time.
  void note_token(const DraftedSequence& sequence, const DrawnToken& drawn);
  void note_taken(DraftedSequence& sequence, const EntryDraws& entry, const StepDraws& draws, std::uint64_t pass);
  void note_step(double seconds) { rounds_.note_step(seconds); }

  const Counts& counts() const { return counts_; }

 private:
  void stop_waiting();
  void note_verified(DraftedSequence& sequence, const EntryDraws& entry, std::int64_t num_rows);

  const Model& model_;
  Scheduler& scheduler_;
  const bool has_states_;
  const DraftingOptions options_;
  const std::span<const TokenId> end_of_generation_;
  DraftRounds rounds_;
  Counts counts_;
  std::uint64_t num_passes_ = 0;         // steps submitted so far
  std::uint64_t next_waiting_pass_ = 0;  // no step before it waits for drafts
};

}  // namespace quire
