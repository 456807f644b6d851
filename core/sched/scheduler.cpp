#include "core/sched/scheduler.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "core/sched/importance.h"
#include "kernels/check.h"

namespace quire {

namespace {

// scheduler.max_step_time: auto
constexpr double kShortestAutoStep = 0.25;
constexpr double kAutoStepOfFixed =
    4.0;  // a step's fixed price is at most so small a part of it: weights are read again
constexpr std::size_t kNextToStart = 8;  // waiting sequences that are made ready before they start

// Under kPriority the level ages as the order of waiting does, so that the most important sequence there is stays so
// later ones: no sequence is preempted for ever.
std::int64_t level_of(const Request& request, const SchedulerOptions& options) {
  if (request.is_background) return kBackgroundLevel;
  return options.policy == SchedulerPolicy::kPriority ? aged_rank(request, options.priority_aging_s) : request.priority;
}

// Until commit.
bool is_kept(const Sequence& sequence) {
  return sequence.num_scheduled > 0 || sequence.keeps_blocks;
}

// Blocks held for each token generated: what giving up `a` frees for what it costs.
bool holds_more_for_less(const Sequence& a, const Sequence& b) {
  const auto blocks_a = static_cast<std::int64_t>(a.table.blocks.size());
  const auto blocks_b = static_cast<std::int64_t>(b.table.blocks.size());
  return blocks_a * (b.num_generated() + 1) > blocks_b * (a.num_generated() + 1);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvCache& kv) : options_(options), kv_(kv), waiting_(options) {
  const std::int64_t pool_tokens = kv.pool().num_blocks() * kv.block_size();
  options_.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, pool_tokens) : pool_tokens;
  const auto max_num_seqs = static_cast<std::size_t>(options.max_num_seqs);
  running_.reserve(max_num_seqs);
  shares_.reserve(max_num_seqs);
  drafted_.reserve(max_num_seqs);
  draft_order_.reserve(kMostDraftsOfStep);
  next_to_start_.reserve(kNextToStart);
  constexpr std::size_t kMostCollected = kNumLanes * (kMostOfLane + WaitingQueue::kMostInTurn);
  collected_.reserve(kMostCollected);
  candidates_.reserve(kMostCollected);
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
  sequence.num_started_before = num_started_;
  begin(sequence);
  waiting_.add(sequence);
  room_changed();
}

std::span<Sequence* const> Scheduler::next_to_start() {
  next_to_start_.clear();
  std::int64_t places = std::min<std::int64_t>(num_places_left(), kNextToStart);
  if (places == 0) return {};
  collected_.clear();
  waiting_.collect(kAllLanes, kNextToStart, kNextToStart, collected_);
  std::ranges::sort(collected_, [&](Sequence* a, Sequence* b) {
    return a->continues_list != b->continues_list ? b->continues_list : waiting_.comes_before(*a, *b);
  });
  std::int64_t blocks = kv_.pool().num_available() - num_running();
  for (Sequence* sequence : collected_) {
    blocks -= kv_.blocks_for(sequence->num_tokens());
    if (--places < 0 || blocks < 0) break;
    next_to_start_.push_back(sequence);
  }
  return next_to_start_;
}

void Scheduler::room_changed() {
  blocked_need_.reset();
  num_turns_blocked_ = 0;
}

void Scheduler::media_arrived() {
  waiting_.leave_restoring_lanes();
  room_changed();
}

void Scheduler::schedule(StepPlan& plan, const StepLimits& limits) {
  plan.clear();
  limits_ = limits;
  ++num_steps_;
  waiting_.begin_turn();
  budget_ = options_.max_num_batched_tokens;
  num_bounded_ = 0;
  if (num_restores_seen_ != kv_.num_restores_ended()) {
    num_restores_seen_ = kv_.num_restores_ended();
    waiting_.leave_restoring_lanes();
    room_changed();
  }
  const bool has_lists_alone = num_running() + num_waiting() == num_of_lists_;
  num_steps_with_lists_alone_ = has_lists_alone ? num_steps_with_lists_alone_ + 1 : 0;
  find_prompts();
  displace_background(plan);
  if (num_places_left() == 0) take_places(plan);
  const std::size_t num_displaced = plan.preempted.size();
  choose_streams();
  place_streaming(plan);
  group_by_adapter(plan);
  const bool is_short_of_memory = plan.preempted.size() > num_displaced;
  if (!is_short_of_memory) place_drafts(plan);
  std::erase_if(shares_, [](const Share& share) { return share.sequence->state != Sequence::State::kRunning; });
  set_prompt_budget(plan);
  if (!is_short_of_memory) admit_waiting(plan);
  share_prompts(plan);
  place_prompts(plan);
  plan.predicted_seconds = cost_.known() ? cost_.seconds(plan.terms) : 0.0;
  if (plan.has_work()) kv_.take_due_copies(plan.transfers.copies);
}

void Scheduler::place_streaming(StepPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && budget_ > 0;) {
    Sequence& sequence = *running_[i];
    if (sequence.streams_now) {
      const std::int64_t num_tokens = std::min(sequence.num_remaining(), budget_);
      if (!make_room(plan, sequence, num_tokens)) {
        preempt(plan, sequence);  // leaves running_[i] to the next one
        continue;
      }
      place(plan, sequence, num_tokens);
      plan.terms.add_stream(sequence.num_computed, num_tokens);
      ++plan.num_streaming;
    }
    ++i;
  }
}

// Rows with one adapter lie side by side: its matrices are read once. Of the streams, which are all that is placed yet.
void Scheduler::group_by_adapter(StepPlan& plan) {
  const auto adapter_of = [](const StepEntry& entry) { return entry.sequence->request->adapter.get(); };
  if (std::ranges::all_of(plan.entries, [&](const StepEntry& entry) { return adapter_of(entry) == nullptr; })) return;
  std::ranges::sort(plan.entries, std::less<>(),
                    [&](const StepEntry& entry) { return std::pair(adapter_of(entry), entry.sequence->id.value); });
}

void Scheduler::place(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens) {
  plan.entries.push_back({&sequence, num_tokens});
  plan.num_tokens += num_tokens;
  sequence.num_scheduled = num_tokens;
  budget_ -= num_tokens;
}

bool Scheduler::make_room(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens) {
  const std::int64_t wanted = sequence.num_computed + num_tokens;
  while (!kv_.grow(sequence.table, sequence.num_computed, wanted, plan.transfers.copies)) {
    Sequence* const victim = choose_victim(sequence);
    if (victim == &sequence) return false;
    preempt(plan, *victim);
  }
  return true;
}

// The least important sequence that is not in the plan, `sequence` itself where all below it are. Among those that
// arrived together (the choices of one request), the one that holds most blocks for what it has generated.
Sequence* Scheduler::choose_victim(const Sequence& sequence) const {
  auto candidate = running_.rbegin();
  while (*candidate != &sequence && is_kept(**candidate))
    ++candidate;
  Sequence* victim = *candidate;
  for (; *candidate != &sequence; ++candidate) {
    const Sequence& other = *candidate[1];
    if (!equally_important(other, *victim)) break;
    if (!is_kept(other) && holds_more_for_less(other, *victim)) victim = candidate[1];
  }
  return victim;
}

void Scheduler::release(Sequence& sequence, WhenEvicted when_evicted) {
  const std::int64_t num_known = sequence.num_known_computed();  // a pending token may be known by now
  kv_.commit(sequence.table, sequence.tokens, num_known);
  if (num_known < sequence.num_computed) kv_.drop_state(sequence.table);  // it is ahead
  kv_.release(sequence.table, sequence.tokens, num_known, when_evicted);
}

void Scheduler::preempt(StepPlan& plan, Sequence& sequence) {
  leave_running(sequence);
  const bool swapped = swaps(sequence);
  release(sequence, swapped ? WhenEvicted::kOffered : WhenEvicted::kForgotten);
  num_swaps_ += swapped ? 1 : 0;
  sequence.num_computed = 0;
  sequence.state = Sequence::State::kWaiting;
  sequence.num_started_before = num_started_;
  ++sequence.num_preemptions;
  ++num_preemptions_;
  waiting_.add(sequence);
  plan.preempted.push_back(&sequence);
  room_changed();
}

// Only unshared blocks are lost, and of a block that is not full at most its tokens: those are computed either way.
bool Scheduler::swaps(const Sequence& victim) const {
  if (!limits_.swap_block_s || options_.preemption == Preemption::kRecompute) return false;
  if (options_.preemption == Preemption::kSwap) return true;
  const auto full = std::span(victim.table.blocks).first(static_cast<std::size_t>(victim.table.num_entered));
  const std::int64_t num_own =
      std::count_if(full.begin(), full.end(), [&](BlockId block) { return kv_.pool().num_references(block) == 1; });
  return static_cast<double>(num_own) * *limits_.swap_block_s <= cost_.prompt_seconds(0, num_own * kv_.block_size());
}

// Takes all the memory that it needs here until it ends, or none.
void Scheduler::begin(Sequence& sequence) {
  kv_.reserve(sequence.table, sequence.most_tokens());
  kv_.open(sequence.table, sequence.cache_salt);
  try {
    waiting_.began(sequence);
  } catch (...) {
    kv_.close(sequence.table);
    throw;
  }
  num_of_lists_ += sequence.continues_list ? 1 : 0;
}

void Scheduler::enter_running(Sequence& sequence) {
  sequence.state = Sequence::State::kRunning;
  num_running_choices_ += sequence.is_choice ? 1 : 0;
  num_running_of_lists_ += sequence.continues_list ? 1 : 0;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, more_important), &sequence);
}

void Scheduler::leave_running(Sequence& sequence) {
  const auto place = std::lower_bound(running_.begin(), running_.end(), &sequence, more_important);
  QUIRE_CHECK(place != running_.end() && *place == &sequence, "a running sequence has one place");
  running_.erase(place);
  num_running_choices_ -= sequence.is_choice ? 1 : 0;
  num_running_of_lists_ -= sequence.continues_list ? 1 : 0;
  waiting_.wake(sequence);
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
    if (std::ranges::binary_search(sequence.borders, sequence.num_computed))
      kv_.keep_snapshot(sequence.table, sequence.tokens, sequence.num_computed);
    if (sequence.prompt_computed()) {
      // Of a preempted sequence that came back at once, the pending token may have been computed, too.
      const std::int64_t num_known = sequence.num_known_computed();
      kv_.enter_partial(sequence.table, sequence.tokens, num_known);
      if (sequence.borders.empty() && num_known == sequence.num_computed)
        kv_.keep_snapshot(sequence.table, sequence.tokens, sequence.num_computed);
      waiting_.wake(sequence);
      room_changed();
    }
  }
  if (output.cut_slice) {
    uncut_seconds_ = 0.0;  // its time says little of what was kept
  } else {
    uncut_seconds_ += output.seconds;
    observe(plan, output.seconds);
  }
}

// A recurrent state that went over a wrong draft goes back to where it stood before the step: what was right of it is
// computed again, with the same bits.
std::int64_t Scheduler::num_kept_after(const StepEntry& entry, const EntryOutput& done) {
  const bool has_copy = entry.sequence->table.state_before_drafts != kNoState;
  const bool all_right = done.num_accepted == entry.num_drafts;
  if (has_copy) kv_.settle_drafts(entry.sequence->table, all_right);
  return has_copy && !all_right ? 0 : done.num_kept(entry);
}

// Where the last num_computed tokens of a prompt passed a border, others are likely to branch off.
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
  child.num_started_before = num_started_;
  const std::int64_t num_shared = std::min(parent.num_computed, child.num_tokens());
  const bool can_share = kv_.can_fork(parent.table, num_shared, parent.num_computed);
  if (num_places_left() == 0 || parent.state != Sequence::State::kRunning || !can_share) {
    child.state = Sequence::State::kWaiting;
    waiting_.add(child);
    return;
  }
  child.num_computed = num_shared;
  kv_.fork(parent.table, child.table, child.num_computed);
  ++num_started_;
  enter_running(child);
}

void Scheduler::finish(Sequence& sequence) {
  QUIRE_CHECK(sequence.num_scheduled == 0, "a plan is committed before its sequences finish");
  if (sequence.state == Sequence::State::kRunning) {
    leave_running(sequence);
    release(sequence, WhenEvicted::kOffered);
    room_changed();
  } else if (sequence.state == Sequence::State::kWaiting) {
    waiting_.remove(sequence);
    room_changed();
  } else {
    return;
  }
  num_of_lists_ -= sequence.continues_list ? 1 : 0;
  waiting_.ended(sequence);
  kv_.close(sequence.table);
  sequence.state = Sequence::State::kDone;
}

double Scheduler::most_restore_seconds(const Sequence& sequence) const {
  const bool was_swapped = options_.preemption == Preemption::kSwap && sequence.has_started;
  return was_swapped ? 0.0 : cost_.prompt_token_seconds();
}

double Scheduler::max_step_seconds() const {
  if (options_.max_step_time_ms == 0.0) return std::numeric_limits<double>::infinity();
  if (options_.max_step_time_ms > 0.0) return options_.max_step_time_ms / 1000.0;
  return std::max(kShortestAutoStep, kAutoStepOfFixed * cost_.fixed_seconds());
}

}  // namespace quire
