// Scheduler: plans each step: the sequences that run, the tokens of each, the sequences that are preempted. Engine
// thread only. Knows no clock, thread, socket or model; time is an argument. Plan, admit, commit: a plan that fails
// changes nothing. A Pass is made for each step and given to policies, one after another (README.md). Invariants: each
// step advances at least one sequence; a sequence in the plan keeps its blocks until commit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/policy/admission_policy.h"
#include "core/sched/policy/background.h"
#include "core/sched/policy/displacement.h"
#include "core/sched/policy/drafts.h"
#include "core/sched/policy/lists.h"
#include "core/sched/policy/prompts.h"
#include "core/sched/policy/start_candidates.h"
#include "core/sched/policy/streams.h"
#include "core/sched/running.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/sequence.h"
#include "core/sched/step_cost.h"
#include "core/sched/step_plan.h"
#include "core/sched/time_bounds.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class Scheduler {
 public:
  // kv must outlive the scheduler. max_model_len of the options is limited to the tokens that the pool holds.
  Scheduler(const SchedulerOptions& options, KvCache& kv);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  std::int64_t max_model_len() const { return options_.max_model_len; }
  std::int64_t max_step_tokens() const { return quire::max_step_tokens(options_, options_.max_model_len); }
  // Refuses a request that could never run: longer than max_model_len, or with more choices than places.
  Result<void> check(const Request& request) const;

  // Adds a waiting sequence (state kNew, tokens = the prompt), which must not be moved until finish(). add() and fork()
  // throw std::bad_alloc, and change nothing then.
  void add(Sequence& sequence);
  // The first waiting sequences, as many as have places and room, so that the caller can fetch their blocks before
  // schedule().
  std::span<Sequence* const> next_to_start();
  // Called when rows of waiting sequences' media have been encoded: these sequences may start.
  void media_arrived() { waiting_.leave_restoring_lanes(); }
  // Fills the plan; empty where nothing can run.
  void schedule(StepPlan& plan, const StepLimits& limits = {});
  // Takes blocks for at most `most` drafts behind the last token of a running sequence, before the plan is made and
  // without preempting; returns for how many drafts there are blocks.
  std::int64_t take_room_for_drafts(Sequence& sequence, std::int64_t most) { return drafts_.take_room(sequence, most); }
  // An estimate of the next plan's drafting budget.
  DraftBudget draft_budget() const { return drafts_.budget(); }
  // Records that the plan was computed, as `output` says. Called before new tokens are appended. If the time is known
  // only later, observe() reports it.
  void commit(StepPlan& plan, const StepOutput& output);
  void observe(const StepPlan& committed, double seconds) { drafts_.observe(committed, seconds); }
  // Gives up a plan that will not be computed. Its sequences can only be finished then.
  void abandon(StepPlan& plan);
  // `child` (kNew) continues where `parent` stands. With a free place it runs at once and shares the parent's blocks;
  // without one it waits, and finds the computed blocks in the cache when it starts.
  void fork(Sequence& parent, Sequence& child);
  // Frees everything that an ended or aborted sequence holds. Not while it is in an uncommitted plan.
  void finish(Sequence& sequence);

  // Most important first.
  std::span<Sequence* const> running() const { return running_.sequences(); }
  std::int64_t num_running() const { return running_.size(); }
  void set_key_weights(std::map<std::string, double> weights) { waiting_.set_key_weights(std::move(weights)); }
  std::int64_t num_waiting() const { return waiting_.size(); }
  std::uint64_t num_preemptions() const { return running_.num_preemptions(); }
  std::uint64_t num_swaps() const { return running_.num_swaps(); }
  std::uint64_t prefix_queries() const { return admission_.prefix_queries(); }
  std::uint64_t prefix_hits() const { return admission_.prefix_hits(); }
  // The longest time that restoring one token of the sequence may take: the time of computing it. 0: not known yet, or
  // no limit.
  double most_restore_seconds(const Sequence& sequence) const;
  // The longest predicted time of a step while a request waits or streams; infinite where that is off.
  double max_step_seconds() const { return bounds_.longest(); }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  Pass begin_pass(StepPlan& plan, const StepLimits& limits);
  void begin(Sequence& sequence);
  void commit_prompt(Sequence& sequence);
  void keep_windows(Sequence& sequence, std::int64_t num_computed);
  std::int64_t num_kept_after(const StepEntry& entry, const EntryOutput& done);

  SchedulerOptions options_;
  KvCache& kv_;
  StepCost cost_;
  WaitingQueue waiting_;
  Running running_;
  TimeBounds bounds_;

  Lists lists_;
  Background background_;
  Streams streams_;
  Drafts drafts_;
  Prompts prompts_;
  StartCandidates candidates_;
  AdmissionPolicy admission_;
  Displacement displacement_;

  std::int64_t num_steps_ = 0;              // planned
  std::uint64_t num_restores_seen_ = 0;     // ended restores at the last schedule()
  std::vector<PromptShare> prompt_shares_;  // memory of each Pass
  std::vector<Sequence*> waiting_order_;    // scratch of next_to_start()
  std::vector<Sequence*> next_to_start_;
};

}  // namespace quire
