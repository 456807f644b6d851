#include <algorithm>
#include <limits>
#include <tuple>

#include "core/sched/importance.h"
#include "core/sched/scheduler.h"

namespace quire {

namespace {

constexpr std::int64_t kMinPromptChunk = 16;
constexpr std::int64_t kMinFurtherChunk = 4;  // of a prompt that gets what others of the step left
constexpr double kOldestPart = 0.25;        // of a step's prompt tokens, so that a long prompt ends whatever else comes
constexpr double kStreamsPart = 0.75;       // of a step that streams fill, while there are prompts
constexpr double kLeastStreamsPart = 0.5;   // the same, where the least chunk of a prompt would leave them less
constexpr double kLongSliceOfFixed = 20.0;  // seconds of a slice that an arrival may cut, of a step's fixed price
constexpr double kUncutOfLongSlice = 20.0;  // of such a slice's time, that passes between two that are cut
// Of a step, for sequences of lists: little, for a request that arrives beside them waits for the rest of one such step
// and for its own; but three times the fixed price, which is paid again in each step.
constexpr double kListStep = 0.025;
constexpr double kListStepOfFixed = 3.0;
constexpr std::int64_t kListsAlone = 64;  // steps without other sequences, after which lists get whole steps
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool older(const Sequence& a, const Sequence& b) {
  return importance(a) < importance(b);
}

}  // namespace

bool Scheduler::Order::operator<(const Order& other) const {
  return std::tie(priority, continues_list, counter, num_remaining, arrival, id) <
         std::tie(other.priority, other.continues_list, other.counter, other.num_remaining, other.arrival, other.id);
}

Scheduler::Order Scheduler::order_of(const Sequence& sequence, std::int64_t num_remaining) const {
  const Request& request = *sequence.request;
  const std::int64_t priority = request.is_background ? kBackgroundLevel : by_class() ? request.priority : 0;
  return {priority,      sequence.continues_list, waiting_.counter(sequence),
          num_remaining, request.arrival,         sequence.id.value};
}

// A prompt that others wait for is as urgent as the most urgent of them.
Scheduler::Order Scheduler::order_of(const Sequence& running) const {
  const Order own = order_of(running, running.num_remaining());
  const Sequence* const waits = running.waiting.first_parked;
  if (waits == nullptr) return own;
  return std::min(own, order_of(*waits, std::max<std::int64_t>(waits->num_tokens() - running.num_computed, 1)));
}

// What streams may take of a step of `most` seconds: a part is left to prompts.
double Scheduler::stream_seconds(double most) const {
  if (!expects_prompts() || most == kNoLimit) return most;
  return std::clamp(most - cost_.prompt_seconds(0, kMinPromptChunk), kLeastStreamsPart * most, kStreamsPart * most);
}

// What a step with sequences of lists may take for them, beside what others have of it.
double Scheduler::list_seconds() const {
  if (num_of_lists_ == 0 || options_.max_step_time_ms == 0.0 || num_steps_with_lists_alone_ > kListsAlone)
    return kNoLimit;
  return std::max(kListStep, kListStepOfFixed * cost_.fixed_seconds());
}

// All who stream go on. Where that would take longer than a step may, they take turns.
void Scheduler::choose_streams() {
  for (Sequence* sequence : running_)
    sequence->streams_now = sequence->streams() && sequence->num_remaining() > 0 && !sequence->keeps_blocks;
  choose_background();
  StepTerms all;
  for (const Sequence* sequence : running_) {
    if (sequence->streams_now) all.add_stream(sequence->num_computed, sequence->num_remaining());
  }
  const double limit = stream_seconds(max_step_seconds());
  const double list_limit = num_running_of_lists_ > 0 ? std::min(limit, stream_seconds(list_seconds())) : limit;
  if (!cost_.known() || cost_.seconds(all) <= list_limit) {
    last_turn_.reset();
    last_list_turn_.reset();
    return;
  }
  StepTerms terms;
  take_turns(false, limit, terms, last_turn_);
  take_turns(true, list_limit, terms, last_list_turn_);
}

// As many as fit, one at least, in the order of importance, beginning after the last one of the step before.
void Scheduler::take_turns(bool of_lists, double limit, StepTerms& terms, std::optional<Importance>& last) {
  const auto comes_after = [](const std::optional<Importance>& turn, const Sequence* each) {
    return turn < importance(*each);
  };
  const auto first = std::upper_bound(running_.begin(), running_.end(), last, comes_after) - running_.begin();
  StepTerms wanted = terms;
  bool is_first = true;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[(static_cast<std::size_t>(first) + i) % running_.size()];
    if (has_foreground_ && sequence.request->is_background) sequence.streams_now = false;
    if (!sequence.streams_now || sequence.continues_list != of_lists) continue;
    wanted.add_stream(sequence.num_computed, sequence.num_remaining());
    sequence.streams_now = is_first || cost_.seconds(wanted) <= limit;
    if (!sequence.streams_now) continue;
    is_first = false;
    terms = wanted;
    last = importance(sequence);
  }
}

void Scheduler::find_prompts() {
  shares_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->streams()) continue;
    sequence->num_computed +=
        kv_.adopt(sequence->table, sequence->tokens, sequence->num_computed, sequence->prefix_limit());
    if (sequence->embedded_until(sequence->num_computed) == sequence->num_computed) continue;
    if (!sequence->streams()) shares_.push_back({sequence, order_of(*sequence), 0});
  }
  std::sort(shares_.begin(), shares_.end(), [](const Share& a, const Share& b) { return a.order < b.order; });
}

// A slice takes what a step may take, or longer where a step's fixed price would be a large part of that. An arrival
// cuts a longer one, and what that wastes stays a small part of the time: for a while, slices are short then.
void Scheduler::set_slices(StepPlan& plan) const {
  const double fixed_s = cost_.fixed_seconds();
  const double long_s = kLongSliceOfFixed * fixed_s;
  double slice_s = max_step_seconds();
  plan.cuts_slices = long_s > slice_s && uncut_seconds_ >= kUncutOfLongSlice * long_s;
  if (plan.cuts_slices) slice_s = long_s;
  const std::int64_t end = shares_.empty() ? 0 : shares_[0].sequence->num_tokens();
  plan.slice_tokens = std::max(cost_.prompt_tokens_within(slice_s - fixed_s, end), kMinPromptChunk);
}

// The time and the tokens that streaming sequences leave to prompts.
void Scheduler::set_prompt_budget(StepPlan& plan) {
  const double streams_s = cost_.seconds(plan.terms);
  double limit = limits_.max_seconds;
  if (plan.num_streaming > 0 && options_.target_itl_ms > 0.0) limit = std::min(limit, options_.target_itl_ms / 1000.0);
  const double most = max_step_seconds();
  const bool alone = num_running() + num_waiting() == 1 && !limits_.is_awaited;
  if (alone && limits_.can_end_early && most < kNoLimit) {
    plan.interruptible = true;
    set_slices(plan);
  } else {
    limit = std::min(limit, most);
  }
  // Prompts are not starved by a bound that streams alone use up.
  limit = std::max(limit, streams_s / kStreamsPart);
  prompt_budget_ = budget_;
  prompt_seconds_ = kNoLimit;
  step_seconds_ = limit - streams_s;
  kept_from_lists_s_ = 0.0;
  if (limit == kNoLimit) return;
  kept_from_lists_s_ = std::max(limit - list_seconds(), 0.0);
  prompt_seconds_ = limit - streams_s;
  prompt_budget_ = std::min(budget_, std::max(cost_.prompt_tokens_within(prompt_seconds_, 0), kMinPromptChunk));
}

// All of the prompt, or nothing: the first of a step, which may take more than the step's budget, or what fits.
void Scheduler::give_whole(Share& share, std::int64_t num_tokens, double seconds) {
  const std::int64_t wanted = share.sequence->num_remaining();
  const double price = cost_.prompt_seconds(0, wanted);
  if (share.num_tokens > 0 || (num_given_ > 0 && (wanted > num_tokens || price > seconds))) return;
  num_given_ += wanted;
  share.num_tokens = wanted;
  prompt_budget_ -= wanted;
  prompt_seconds_ -= price;
}

// Of the first prompt of a step: not more than fits the step, but a token.
std::int64_t Scheduler::least_chunk(const Sequence& sequence, std::int64_t wanted) const {
  const std::int64_t least = std::min({wanted, kMinPromptChunk, budget_});
  if (step_seconds_ == kNoLimit) return least;
  return std::clamp<std::int64_t>(cost_.prompt_tokens_within(step_seconds_, sequence.num_computed), 1, least);
}

// To where a recurrent state is to be kept, at most.
std::int64_t Scheduler::wanted_of(const Share& share) const {
  const Sequence& sequence = *share.sequence;
  const std::int64_t from = sequence.num_computed + share.num_tokens;
  const std::int64_t wanted =
      std::min(sequence.num_remaining() - share.num_tokens, sequence.embedded_until(from) - from);
  const auto border = std::ranges::upper_bound(sequence.borders, sequence.num_computed);
  return !kv_.skips_tokens() && border != sequence.borders.end() ? std::min(wanted, *border - from) : wanted;
}

void Scheduler::add_to(Share& share, std::int64_t num_tokens) {
  const std::int64_t from = share.sequence->num_computed + share.num_tokens;
  num_given_ += num_tokens;
  share.num_tokens += num_tokens;
  prompt_budget_ -= num_tokens;
  prompt_seconds_ -= cost_.prompt_seconds(from, num_tokens);
  if (share.sequence->has_bound()) num_bounded_ += num_tokens;
}

void Scheduler::give(Share& share, std::int64_t num_tokens, double seconds) {
  const Sequence& sequence = *share.sequence;
  if (sequence.continues_list) seconds -= kept_from_lists_s_;
  if (options_.whole_prompts) return give_whole(share, num_tokens, seconds);
  const std::int64_t from = sequence.num_computed + share.num_tokens;
  const std::int64_t wanted = wanted_of(share);
  std::int64_t given = std::min(wanted, num_tokens);
  if (sequence.has_bound()) given = std::min(given, sequence.max_chunk - num_bounded_);
  if (seconds < kNoLimit && given > 0 && cost_.prompt_seconds(from, given) > seconds)
    given = std::clamp<std::int64_t>(cost_.prompt_tokens_within(seconds, from), num_given_ == 0 ? 1 : 0, given);
  if (given <= 0) return;
  // A row or two of a prompt cost more than they bring; some progress there is always.
  const std::int64_t least = sequence.continues_list ? kMinPromptChunk : kMinFurtherChunk;
  if (num_given_ > 0 && given < std::min(wanted, least)) return;
  if (num_given_ == 0 && given < std::min(wanted, kMinPromptChunk) && !sequence.has_bound())
    given = std::max(given, least_chunk(sequence, wanted));
  given = sequence.chunk_end(from, from + given) - from;
  if (num_given_ + given > budget_) return;
  add_to(share, given);
}

void Scheduler::share_prompts(StepPlan& plan) {
  num_given_ = 0;
  // Those of the background, which are behind all others; without others they share as these do.
  const auto background = has_foreground_
                              ? std::find_if(shares_.begin(), shares_.end(),
                                             [](const Share& each) { return each.order.priority == kBackgroundLevel; })
                              : shares_.end();
  const std::span<Share> prompts(shares_.begin(), background);
  if (prompts.size() > 1) {
    const auto oldest = std::min_element(
        prompts.begin(), prompts.end(), [](const Share& a, const Share& b) { return older(*a.sequence, *b.sequence); });
    // In a step that has room for few tokens the oldest gets a chunk of its own from time to time.
    oldest_credit_ += kOldestPart * static_cast<double>(prompt_budget_);
    const auto due = static_cast<std::int64_t>(oldest_credit_);
    const std::int64_t remaining = oldest->sequence->num_remaining();
    const std::int64_t least = options_.whole_prompts ? remaining : std::min(kMinPromptChunk, remaining);
    if (due >= std::min(least, prompt_budget_)) {
      std::int64_t part = std::min(due, prompt_budget_);
      if (oldest->sequence->has_bound())
        part =
            std::min(part, static_cast<std::int64_t>(kOldestPart * static_cast<double>(oldest->sequence->max_chunk)));
      give(*oldest, part, prompt_seconds_);
      oldest_credit_ = 0.0;
    }
  }
  for (Share& share : prompts)
    give(share, prompt_budget_, prompt_seconds_);
  for (Share& share : std::span(background, shares_.end()))
    give_background(share);
  plan.interruptible = plan.interruptible && shares_.size() == 1;
  plan.cuts_slices = plan.cuts_slices && plan.interruptible;
  if (!plan.interruptible) plan.slice_tokens = 0;
}

// In the order of importance. Their blocks they have had since they were admitted, and parts for a block's tokens more
// at least; only a long text that a grammar forced asks for more.
void Scheduler::place_prompts(StepPlan& plan) {
  std::sort(shares_.begin(), shares_.end(),
            [](const Share& a, const Share& b) { return older(*a.sequence, *b.sequence); });
  for (const Share& share : shares_) {
    Sequence& sequence = *share.sequence;
    if (share.num_tokens == 0 || sequence.state != Sequence::State::kRunning) continue;
    const std::int64_t with_parts = kv_.tokens_with_parts(sequence.table, sequence.num_computed);
    const std::int64_t most = std::min(share.num_tokens, std::max<std::int64_t>(with_parts - sequence.num_computed, 1));
    const std::int64_t num_tokens =
        sequence.chunk_end(sequence.num_computed, sequence.num_computed + most) - sequence.num_computed;
    if (num_tokens > most || !make_room(plan, sequence, num_tokens)) continue;
    plan.terms.add_prompt(sequence.num_computed, num_tokens);
    place(plan, sequence, num_tokens);
    plan.num_prompt_tokens += num_tokens;
  }
  for (const Share& share : shares_)
    share.sequence->keeps_blocks = false;
}

}  // namespace quire
