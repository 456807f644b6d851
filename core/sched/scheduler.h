// Scheduler: plans each step: the sequences that run, the tokens of each, the sequences that are preempted. Engine
// thread only. Knows no clock, thread, socket or model; time is an argument. Plan, admit, commit: a plan that fails
// changes nothing. Invariants: streams go first, in turns where they do not fit max_step_time; each step advances at
// least one sequence; a sequence is preempted only for one at least as important (lower priority number, aged where the
// policy ages it, then older), a choice or a list's prompt also for another request's first place, a background one for
// any other; one in the plan keeps its blocks until commit. What continues a list of prompts goes behind the rest, in a
// part of the places and, beside others, of a step's time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/kv/kv_cache.h"
#include "core/sched/importance.h"
#include "core/sched/row_curve.h"
#include "core/sched/scheduler_options.h"
#include "core/sched/sequence.h"
#include "core/sched/step_cost.h"
#include "core/sched/step_plan.h"
#include "core/sched/waiting_queue.h"

namespace quire {

// What drafting may take before a step: each round as long as it yields more tokens for its time than the step does
// without it.
class DraftBudget {
 public:
  // seconds 0: not known yet. num_streams: those that the step continues. row: of verifying one draft. margin: by which
  // a round must be a better use of time than the step without it.
  DraftBudget(double seconds, double num_streams, double row, double margin)
      : seconds_(seconds), num_tokens_(num_streams), row_(row), margin_(margin) {}

  // A round over so many sequences, which yields num_expected tokens; round 0: its price is not known. False: it does
  // not pay.
  bool take(double num_expected, std::int64_t num_sequences, double round);
  bool is_worth(double num_expected, std::int64_t num_sequences, double round) const;

  double seconds() const { return seconds_; }
  double row_seconds() const { return row_; }
  double token_seconds() const { return num_tokens_ > 0.0 ? seconds_ / num_tokens_ : 0.0; }

 private:
  double seconds_;
  double num_tokens_;
  double row_;
  double margin_;
  int num_unpriced_ = 0;
};

class Scheduler {
 public:
  // kv must outlive the scheduler. max_model_len of the options is cut to what the pool holds.
  Scheduler(const SchedulerOptions& options, KvCache& kv);

  std::int64_t max_model_len() const { return options_.max_model_len; }
  std::int64_t max_step_tokens() const { return quire::max_step_tokens(options_, options_.max_model_len); }
  // Refuses what could never run: longer than max_model_len, or more choices than sequences.
  Result<void> check(const Request& request) const;

  // The sequence (state kNew, tokens = the prompt) waits from now on. It must stay where it is until finish(). Where
  // memory fails, here and in fork(), that is thrown and nothing has changed.
  void add(Sequence& sequence);
  // The first that wait, as many as there are places and room for: what helps them should be done before schedule().
  std::span<Sequence* const> next_to_start();
  // Rows of waiting sequences' media have been encoded: those that awaited them may start.
  void media_arrived();
  // Fills the plan; empty where nothing can run.
  void schedule(StepPlan& plan, const StepLimits& limits = {});
  // Takes blocks for drafts behind the last token of a running sequence that is drafted in rounds, before the plan is
  // made: for at most so many, and without preempting; returns for how many.
  std::int64_t take_room_for_drafts(Sequence& sequence, std::int64_t most);
  // Of the next plan, as far as it is known before it is made.
  DraftBudget draft_budget() const;
  // The plan was computed, as `output` says. Called before new tokens are appended. Where its time is known later,
  // observe() reports it.
  void commit(StepPlan& plan, const StepOutput& output);
  void observe(const StepPlan& committed, double seconds);
  // The plan will never be computed: its sequences can be finished now, and nothing else be done with them.
  void abandon(StepPlan& plan);
  // `child` (kNew) continues where `parent` stands. With a place free it runs at once and shares the running parent's
  // blocks; without one it waits like any other, and finds the computed blocks when it starts.
  void fork(Sequence& parent, Sequence& child);
  // Frees everything the sequence holds: it has ended or was aborted. Not while it is in an uncommitted
  // plan.
  void finish(Sequence& sequence);

  // Most important first.
  std::span<Sequence* const> running() const { return running_; }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  void set_key_weights(std::map<std::string, double> weights) { waiting_.set_key_weights(std::move(weights)); }
  std::int64_t num_waiting() const { return waiting_.size(); }
  std::uint64_t num_preemptions() const { return num_preemptions_; }
  std::uint64_t num_swaps() const { return num_swaps_; }  // of them, those whose blocks went to the tier below
  std::uint64_t prefix_queries() const { return prefix_queries_; }  // prompt tokens looked up when starting
  std::uint64_t prefix_hits() const { return prefix_hits_; }
  // What a tier below may take to bring a token of the sequence back, which is what computing it takes; 0: as long as
  // it likes, or not known yet.
  double most_restore_seconds(const Sequence& sequence) const;
  // The longest predicted time of a step while a request waits or streams; infinite where that is off.
  double max_step_seconds() const;
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  static constexpr std::size_t kMostOfLane = 24;  // waiting sequences that are looked at together

  // In which order prompts get tokens: by class under kPriority, those of lists last, by what their key was served
  // under kFair, then the shortest remainder first.
  struct Order {
    std::int64_t priority;
    bool continues_list;
    double counter;
    std::int64_t num_remaining;
    Clock::time_point arrival;
    std::int64_t id;
    bool operator<(const Order& other) const;
  };
  // A prompt in progress, and what it gets of the step.
  struct Share {
    Sequence* sequence;
    Order order;
    std::int64_t num_tokens;
  };
  // A streaming entry that has drafts left, and what verifying the next one yields.
  struct Drafted {
    std::size_t entry;
    double probability;  // that it is accepted
    double seconds;
    std::int64_t num_taken = 0;
    bool operator<(const Drafted& other) const;
  };
  // A waiting sequence that could start.
  struct Candidate {
    Sequence* sequence;
    PrefixMatch match;
    Order order;
  };

  // scheduler.cpp
  void place_streaming(StepPlan& plan);
  static void group_by_adapter(StepPlan& plan);
  void place(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens);
  bool make_room(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens);
  Sequence* choose_victim(const Sequence& sequence) const;
  void preempt(StepPlan& plan, Sequence& sequence);
  void keep_windows(Sequence& sequence, std::int64_t num_computed);
  std::int64_t num_kept_after(const StepEntry& entry, const EntryOutput& done);
  void release(Sequence& sequence, WhenEvicted when_evicted);
  bool swaps(const Sequence& victim) const;
  void begin(Sequence& sequence);
  void enter_running(Sequence& sequence);
  void leave_running(Sequence& sequence);
  // Whether prompts are to be computed in this step or soon, beside its streams.
  bool expects_prompts() const { return !shares_.empty() || (waiting_.size() > 0 && num_places_left() > 0); }
  bool by_class() const { return options_.policy == SchedulerPolicy::kPriority; }
  std::int64_t num_places_left() const { return options_.max_num_seqs - num_running(); }

  // scheduler_drafts.cpp: how many drafts are verified.
  void place_drafts(StepPlan& plan);
  std::size_t choose_drafts(const StepPlan& plan);
  std::size_t or_measurement(const StepPlan& plan, std::size_t num_best);
  void collect_drafted(const StepPlan& plan);
  bool place_draft(StepPlan& plan, StepEntry& entry);
  std::int64_t most_drafts() const;

  // scheduler_prompts.cpp: how streams and the prompts in progress share a step.
  double stream_seconds(double most) const;
  double list_seconds() const;
  void choose_streams();
  void take_turns(bool of_lists, double limit, StepTerms& terms, std::optional<Importance>& last);
  void find_prompts();
  void set_slices(StepPlan& plan) const;
  void set_prompt_budget(StepPlan& plan);
  Order order_of(const Sequence& sequence, std::int64_t num_remaining) const;
  Order order_of(const Sequence& running) const;
  void share_prompts(StepPlan& plan);
  std::int64_t wanted_of(const Share& share) const;
  void add_to(Share& share, std::int64_t num_tokens);
  std::int64_t least_chunk(const Sequence& sequence, std::int64_t wanted) const;
  void give(Share& share, std::int64_t num_tokens, double seconds);
  void give_whole(Share& share, std::int64_t num_tokens, double seconds);
  void place_prompts(StepPlan& plan);

  // scheduler_background.cpp: background requests use what others leave.
  void displace_background(StepPlan& plan);
  bool has_background_room(const Sequence& sequence) const;
  void choose_background();
  void give_background(Share& share);

  // scheduler_admission.cpp: who starts.
  void admit_waiting(StepPlan& plan);
  void take_places(StepPlan& plan);
  bool find_candidates(Lanes lanes);
  bool set_roomless_aside();
  void note_blocked(const KvRoom& need);
  void room_changed();
  bool has_list_place() const;
  Candidate* choose_candidate();
  bool goes_before(const Candidate& a, const Candidate& b) const;
  bool is_oldest(const Sequence& head) const;
  bool is_served(const Candidate& candidate) const;
  Sequence* choose_displaced(const Sequence& waiting) const;
  // The running sequence that a waiting one depends on, and how much of the prompt must be computed before it
  // continues.
  struct Park {
    Sequence* behind = nullptr;
    std::int64_t until = 0;
  };
  Park computed_by_another(const Sequence& sequence, const PrefixMatch& match) const;
  Park state_made_by_another(const Sequence& sequence, const PrefixMatch& match) const;
  std::int64_t alike_until(const Sequence& sequence, const Sequence& other) const;
  bool waits_for_media(Sequence& sequence, const PrefixMatch& match) const;
  bool parks(Sequence& sequence, const PrefixMatch& match);
  void find_head();
  std::int64_t parts_of_step() const;
  KvRoom room_needed(const Candidate& candidate) const;
  bool may_bypass(const Sequence& sequence) const;
  bool try_start(StepPlan& plan, Sequence& sequence);
  void start(StepPlan& plan, Sequence& sequence, const PrefixMatch& match);
  KvRoom most_room(const Sequence& sequence) const;

  SchedulerOptions options_;
  KvCache& kv_;
  WaitingQueue waiting_;
  StepCost cost_;
  RowCurve row_curve_;
  std::vector<Sequence*> running_;  // most important first
  std::int64_t num_running_choices_ = 0;
  std::int64_t num_running_of_lists_ = 0;
  std::int64_t num_of_lists_ = 0;  // that wait or run
  std::vector<Sequence*> next_to_start_;

  // Of the plan being made.
  StepLimits limits_;
  std::int64_t budget_ = 0;          // tokens left
  std::int64_t prompt_budget_ = 0;   // of them, for prompts
  double prompt_seconds_ = 0.0;      // time left for prompts
  double step_seconds_ = 0.0;        // that the streams of the step leave to prompts
  double kept_from_lists_s_ = 0.0;   // of prompt_seconds_, what lists' prompts do not get
  std::int64_t num_bounded_ = 0;     // tokens of sequences with a max_chunk
  std::int64_t num_given_ = 0;       // to prompts
  bool has_foreground_ = false;      // something runs that is not of the background
  double background_seconds_ = 0.0;  // where it does: time left for the background
  std::vector<Drafted> drafted_;
  std::vector<std::size_t> draft_order_;  // the entry of each draft, best first
  std::vector<Share> shares_;
  std::vector<Candidate> candidates_;
  std::vector<Sequence*> collected_;
  Sequence* head_ = nullptr;      // of the candidates, the first in policy order
  Sequence* blocked_ = nullptr;   // the head, where there is no room for it
  KvRoom room_beside_blocked_{};  // that those which start before it may come to need

  double uncut_seconds_ = std::numeric_limits<double>::infinity();  // of steps, since an arrival cut a slice
  double oldest_credit_ = 0.0;                                      // tokens that are due to the oldest prompt
  std::optional<KvRoom> blocked_need_;                              // the least that was lacking since room_changed()
  std::int64_t num_turns_blocked_ = 0;                              // turns of those without room since then
  std::int64_t num_started_ = 0;                                    // each time that a sequence began to run
  std::int64_t num_steps_ = 0;                                      // planned
  std::uint64_t num_restores_seen_ = 0;                             // that have ended
  std::optional<Importance> last_turn_;       // where not all streams fit a step: of the last that went on
  std::optional<Importance> last_list_turn_;  // of those of lists
  std::int64_t num_steps_with_lists_alone_ = 0;
  std::uint64_t num_preemptions_ = 0;
  std::uint64_t num_swaps_ = 0;
  std::uint64_t prefix_queries_ = 0;
  std::uint64_t prefix_hits_ = 0;
};

}  // namespace quire
