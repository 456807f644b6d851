#include "core/sched/scheduler.h"

#include <algorithm>
#include <string>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::size_t kNextToStart = 8;  // waiting sequences that are made ready before they start

// Under kPriority the level ages like the order of waiting: later arrivals never become more important than the most
// important sequence, so that it is not preempted for ever.
std::int64_t level_of(const Request& request, const SchedulerOptions& options) {
  if (request.is_background) return kBackgroundLevel;
  return options.policy == SchedulerPolicy::kPriority ? aged_rank(request, options.priority_aging_s) : request.priority;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvCache& kv)
    : options_(options),
      kv_(kv),
      waiting_(options),
      running_(options_, kv, waiting_, cost_),
      bounds_(options_, cost_, waiting_, running_),
      lists_(options_, cost_, running_),
      background_(kv, cost_, running_),
      streams_(cost_, bounds_, lists_, background_, running_),
      drafts_(options_, kv, cost_, bounds_, running_),
      prompts_(options_, kv, waiting_, cost_, bounds_, lists_, running_),
      candidates_(options_, kv, waiting_, lists_, background_, running_),
      admission_(options_, kv, waiting_, lists_, candidates_, running_),
      displacement_(options_, kv, candidates_, admission_, running_) {
  const std::int64_t pool_tokens = kv.pool().num_blocks() * kv.block_size();
  options_.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, pool_tokens) : pool_tokens;
  prompt_shares_.reserve(static_cast<std::size_t>(options.max_num_seqs));
  next_to_start_.reserve(kNextToStart);
  waiting_order_.reserve(kNumLanes * kNextToStart);
}

Result<void> Scheduler::check(const Request& request) const {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t num_new = request.pooling == Pooling::kNone ? request.sampling.max_tokens : 0;
  if (num_prompt + num_new > options_.max_model_len) {
    return invalid("This model's maximum context length is " + std::to_string(options_.max_model_len) +
                       " tokens. However, you requested " + std::to_string(num_prompt + num_new) + " tokens (" +
                       std::to_string(num_prompt) + " in the prompt, " + std::to_string(num_new) +
                       " for the completion). Please reduce the length of either one.",
                   "max_tokens", "context_length_exceeded");
  }
  if (request.num_choices > options_.max_num_seqs) {
    return invalid("n is " + std::to_string(request.num_choices) + ", and at most " +
                       std::to_string(options_.max_num_seqs) + " sequences run at once",
                   "n", "too_many_choices");
  }
  return {};
}

void Scheduler::add(Sequence& sequence) {
  QUIRE_CHECK(sequence.state == Sequence::State::kNew && !sequence.tokens.empty(),
              "a sequence is added once, with tokens");
  sequence.borders = kv_.snapshot_borders(sequence.num_prompt_tokens, sequence.message_ends);
  sequence.level = level_of(*sequence.request, options_);
  sequence.state = Sequence::State::kWaiting;
  sequence.num_started_before = running_.num_started();
  begin(sequence);
  waiting_.add(sequence);
}

std::span<Sequence* const> Scheduler::next_to_start() {
  next_to_start_.clear();
  std::int64_t places = std::min<std::int64_t>(running_.num_places_left(), kNextToStart);
  if (places == 0) return {};
  waiting_order_.clear();
  waiting_.collect(kAllLanes, kNextToStart, kNextToStart, waiting_order_);
  std::ranges::sort(waiting_order_, [&](Sequence* a, Sequence* b) {
    return a->continues_list != b->continues_list ? b->continues_list : waiting_.comes_before(*a, *b);
  });
  std::int64_t blocks = kv_.pool().num_available() - num_running();
  for (Sequence* sequence : waiting_order_) {
    blocks -= kv_.blocks_for(sequence->num_tokens());
    if (--places < 0 || blocks < 0) break;
    next_to_start_.push_back(sequence);
  }
  return next_to_start_;
}

void Scheduler::schedule(StepPlan& plan, const StepLimits& limits) {
  Pass pass = begin_pass(plan, limits);
  prompts_.find(pass);
  displacement_.fit(pass);
  streams_.fit(pass);
  drafts_.fit(pass);
  prompts_.set_budget(pass);
  admission_.fit(pass);
  prompts_.fit(pass);
  plan.predicted_seconds = cost_.known() ? cost_.seconds(plan.terms) : 0.0;
  if (plan.has_work()) kv_.take_due_copies(plan.transfers.copies);
}

Pass Scheduler::begin_pass(StepPlan& plan, const StepLimits& limits) {
  plan.clear();
  waiting_.begin_turn();
  if (num_restores_seen_ != kv_.num_restores_ended()) {
    num_restores_seen_ = kv_.num_restores_ended();
    waiting_.leave_restoring_lanes();
  }
  lists_.begin_step(num_running() + num_waiting());
  return {.plan = plan,
          .limits = limits,
          .prompts = prompt_shares_,
          .step = ++num_steps_,
          .num_rows = options_.max_num_batched_tokens};
}

// Reserves all memory that the sequence needs here until it ends, or none.
void Scheduler::begin(Sequence& sequence) {
  kv_.reserve(sequence.table, sequence.most_tokens());
  kv_.open(sequence.table, sequence.cache_salt);
  try {
    waiting_.began(sequence);
  } catch (...) {
    kv_.close(sequence.table);
    throw;
  }
  lists_.began(sequence);
}

void Scheduler::commit(StepPlan& plan, const StepOutput& output) {
  plan.terms = output.terms_of(plan);
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const StepEntry& entry = plan.entries[i];
    const EntryOutput done = output.of(plan, i);
    Sequence& sequence = *entry.sequence;
    const std::int64_t num_kept = num_kept_after(entry, done);
    const bool was_streaming = sequence.prompt_computed();
    sequence.num_scheduled = 0;
    sequence.num_computed += num_kept;
    keep_windows(sequence, num_kept);
    kv_.commit(sequence.table, sequence.tokens, sequence.num_known_computed());
    waiting_.wake_computed(sequence);
    if (was_streaming) {
      waiting_.charge(sequence, num_kept);
      continue;
    }
    commit_prompt(sequence);
  }
  prompts_.observe(output.seconds, output.cut_slice);
  // The time of a cut slice does not measure the rows that were kept.
  if (!output.cut_slice) observe(plan, output.seconds);
}

void Scheduler::commit_prompt(Sequence& sequence) {
  if (std::ranges::binary_search(sequence.borders, sequence.num_computed))
    kv_.keep_snapshot(sequence.table, sequence.tokens, sequence.num_computed);
  if (!sequence.prompt_computed()) return;
  // A preempted sequence that restarted at once may have computed its pending token too.
  const std::int64_t num_known = sequence.num_known_computed();
  kv_.enter_partial(sequence.table, sequence.tokens, num_known);
  if (sequence.borders.empty() && num_known == sequence.num_computed)
    kv_.keep_snapshot(sequence.table, sequence.tokens, sequence.num_computed);
  waiting_.wake(sequence);
}

// If a recurrent state includes a wrong draft, the state before the step is restored, and the right tokens are computed
// again with the same bits.
std::int64_t Scheduler::num_kept_after(const StepEntry& entry, const EntryOutput& done) {
  const bool has_copy = entry.sequence->table.state_before_drafts != kNoState;
  const bool all_right = done.num_accepted == entry.num_drafts;
  if (has_copy) kv_.settle_drafts(entry.sequence->table, all_right);
  return has_copy && !all_right ? 0 : done.num_kept(entry);
}

// Keeps windows at the borders that the last num_computed tokens passed: other prompts are likely to branch off there.
void Scheduler::keep_windows(Sequence& sequence, std::int64_t num_computed) {
  const auto passed = [&](std::int64_t border) {
    return border <= sequence.num_computed && border > sequence.num_computed - num_computed;
  };
  for (const std::int64_t border : sequence.borders) {
    if (passed(border)) kv_.keep_window(sequence.table, border);
  }
}

void Scheduler::abandon(StepPlan& plan) {
  for (const StepEntry& entry : plan.entries)
    entry.sequence->num_scheduled = 0;
  plan.clear();
}

void Scheduler::fork(Sequence& parent, Sequence& child) {
  QUIRE_CHECK(child.state == Sequence::State::kNew, "a new sequence is forked");
  child.cache_salt = parent.cache_salt;
  child.continues_list = parent.continues_list;
  begin(child);
  child.num_cached_tokens = parent.num_cached_tokens;
  child.has_started = true;
  child.is_choice = true;
  child.level = parent.level;
  child.first_start = parent.first_start;
  child.num_started_before = running_.num_started();
  const std::int64_t num_shared = std::min(parent.num_computed, child.num_tokens());
  const bool can_share = kv_.can_fork(parent.table, num_shared, parent.num_computed);
  if (running_.num_places_left() == 0 || parent.state != Sequence::State::kRunning || !can_share) {
    child.state = Sequence::State::kWaiting;
    waiting_.add(child);
    return;
  }
  child.num_computed = num_shared;
  kv_.fork(parent.table, child.table, child.num_computed);
  running_.enter(child);
}

void Scheduler::finish(Sequence& sequence) {
  QUIRE_CHECK(sequence.num_scheduled == 0, "a plan is committed before its sequences finish");
  if (sequence.state == Sequence::State::kRunning) {
    running_.leave(sequence);
    running_.release(sequence, WhenEvicted::kOffered);
  } else if (sequence.state == Sequence::State::kWaiting) {
    waiting_.remove(sequence);
  } else {
    return;
  }
  lists_.ended(sequence);
  waiting_.ended(sequence);
  kv_.close(sequence.table);
  sequence.state = Sequence::State::kDone;
}

double Scheduler::most_restore_seconds(const Sequence& sequence) const {
  const bool was_swapped = options_.preemption == Preemption::kSwap && sequence.has_started;
  return was_swapped ? 0.0 : cost_.prompt_token_seconds();
}

}  // namespace quire
