#include "core/sched/policy/prompts.h"

#include <algorithm>
#include <span>

#include "core/sched/importance.h"

namespace quire {

namespace {

constexpr std::int64_t kMinFurtherChunk = 4;  // least tokens of each prompt after a step's first
constexpr double kOldestPart = 0.25;          // share of a step for the oldest prompt, so that a long one ends
constexpr double kLongSliceOfFixed = 20.0;    // length of a slice that may be cut, in multiples of a step's fixed price
constexpr double kUncutOfLongSlice = 20.0;    // least time between two cuts, in multiples of such a slice

bool older(const PromptShare& a, const PromptShare& b) {
  return importance(*a.sequence) < importance(*b.sequence);
}

}  // namespace

void Prompts::find(Pass& pass) {
  pass.prompts.clear();
  for (Sequence* sequence : running_.sequences()) {
    if (sequence->streams()) continue;
    sequence->num_computed +=
        kv_.adopt(sequence->table, sequence->tokens, sequence->num_computed, sequence->prefix_limit());
    if (sequence->embedded_until(sequence->num_computed) == sequence->num_computed) continue;
    if (!sequence->streams()) pass.prompts.push_back({sequence, PromptOrder(waiting_, *sequence)});
  }
  std::ranges::sort(pass.prompts, [](const PromptShare& a, const PromptShare& b) { return a.order < b.order; });
}

void Prompts::set_budget(Pass& pass) const {
  std::erase_if(pass.prompts,
                [](const PromptShare& share) { return share.sequence->state != Sequence::State::kRunning; });
  const double streams_s = cost_.seconds(pass.plan.terms);
  double limit = pass.limits.max_seconds;
  if (pass.plan.num_streaming > 0 && options_.target_itl_ms > 0.0)
    limit = std::min(limit, options_.target_itl_ms / 1000.0);
  const double most = bounds_.longest();
  const bool alone = running_.size() + waiting_.size() == 1 && !pass.limits.is_awaited;
  if (alone && pass.limits.can_end_early && most < kNoTimeLimit) {
    pass.plan.interruptible = true;
    set_slices(pass);
  } else {
    limit = std::min(limit, most);
  }
  limit = TimeBounds::with_prompts(limit, streams_s);
  pass.for_prompts = {.num_tokens = pass.num_rows, .all_seconds = limit - streams_s};
  if (limit == kNoTimeLimit) return;
  PromptBudget& budget = pass.for_prompts;
  budget.kept_from_lists_s = std::max(limit - lists_.step_seconds(), 0.0);
  budget.seconds = limit - streams_s;
  budget.num_tokens = std::min(pass.num_rows, std::max(cost_.prompt_tokens_within(budget.seconds, 0), kMinPromptChunk));
}

// A slice is as long as a step may be, or longer if the fixed price would be a large share of it. An arrival cuts a
// longer slice, whose time is lost; slices are then short for a while, so that little time is lost in all.
void Prompts::set_slices(Pass& pass) const {
  StepPlan& plan = pass.plan;
  const double fixed_s = cost_.fixed_seconds();
  const double long_s = kLongSliceOfFixed * fixed_s;
  double slice_s = bounds_.longest();
  plan.cuts_slices = long_s > slice_s && uncut_seconds_ >= kUncutOfLongSlice * long_s;
  if (plan.cuts_slices) slice_s = long_s;
  const std::int64_t end = pass.prompts.empty() ? 0 : pass.prompts[0].sequence->num_tokens();
  plan.slice_tokens = std::max(cost_.prompt_tokens_within(slice_s - fixed_s, end), kMinPromptChunk);
}

void Prompts::fit(Pass& pass) {
  share(pass);
  place(pass);
}

// Shares the budget among the prompts. Background prompts get what others leave; without others they share in the same
// way.
void Prompts::share(Pass& pass) {
  const auto background = pass.has_foreground
                              ? std::ranges::find(pass.prompts, kBackgroundLevel,
                                                  [](const PromptShare& each) { return each.order.importance; })
                              : pass.prompts.end();
  const std::span<PromptShare> prompts(pass.prompts.begin(), background);
  if (prompts.size() > 1) give_to_oldest(pass, prompts);
  for (PromptShare& share : prompts)
    give(pass, share, pass.for_prompts.num_tokens, pass.for_prompts.seconds);
  for (PromptShare& share : std::span(background, pass.prompts.end()))
    give_background(pass, share);
  StepPlan& plan = pass.plan;
  plan.interruptible = plan.interruptible && pass.prompts.size() == 1;
  plan.cuts_slices = plan.cuts_slices && plan.interruptible;
  if (!plan.interruptible) plan.slice_tokens = 0;
}

// The oldest prompt gets a chunk of its own from time to time if steps have few tokens for prompts.
void Prompts::give_to_oldest(Pass& pass, std::span<PromptShare> prompts) {
  const std::int64_t num_tokens = pass.for_prompts.num_tokens;
  const auto oldest = std::ranges::min_element(prompts, older);
  oldest_credit_ += kOldestPart * static_cast<double>(num_tokens);
  const auto due = static_cast<std::int64_t>(oldest_credit_);
  const std::int64_t remaining = oldest->sequence->num_remaining();
  const std::int64_t least = options_.whole_prompts ? remaining : std::min(kMinPromptChunk, remaining);
  if (due < std::min(least, num_tokens)) return;
  std::int64_t part = std::min(due, num_tokens);
  if (oldest->sequence->has_bound())
    part = std::min(part, static_cast<std::int64_t>(kOldestPart * static_cast<double>(oldest->sequence->max_chunk)));
  give(pass, *oldest, part, pass.for_prompts.seconds);
  oldest_credit_ = 0.0;
}

void Prompts::give(Pass& pass, PromptShare& share, std::int64_t num_tokens, double seconds) const {
  const Sequence& sequence = *share.sequence;
  const std::int64_t num_given = pass.for_prompts.num_given;
  if (sequence.continues_list) seconds -= pass.for_prompts.kept_from_lists_s;
  if (options_.whole_prompts) return give_whole(pass, share, num_tokens, seconds);
  const std::int64_t from = sequence.num_computed + share.num_tokens;
  const std::int64_t wanted = wanted_of(share);
  std::int64_t given = std::min(wanted, num_tokens);
  if (sequence.has_bound()) given = std::min(given, sequence.max_chunk - pass.num_bounded);
  if (seconds < kNoTimeLimit && given > 0 && cost_.prompt_seconds(from, given) > seconds)
    given = std::clamp<std::int64_t>(cost_.prompt_tokens_within(seconds, from), num_given == 0 ? 1 : 0, given);
  if (given <= 0) return;
  // Chunks of few rows cost more than they gain, except for the step's first prompt, which always advances.
  const std::int64_t least = sequence.continues_list ? kMinPromptChunk : kMinFurtherChunk;
  if (num_given > 0 && given < std::min(wanted, least)) return;
  if (num_given == 0 && given < std::min(wanted, kMinPromptChunk) && !sequence.has_bound())
    given = std::max(given, least_chunk(pass, sequence, wanted));
  given = sequence.chunk_end(from, from + given) - from;
  if (num_given + given > pass.num_rows) return;
  add_to(pass, share, given);
}

// Gives the whole prompt or nothing. The first of a step may exceed the step's budget; further ones must fit it.
void Prompts::give_whole(Pass& pass, PromptShare& share, std::int64_t num_tokens, double seconds) const {
  PromptBudget& budget = pass.for_prompts;
  const std::int64_t wanted = share.sequence->num_remaining();
  const double price = cost_.prompt_seconds(0, wanted);
  if (share.num_tokens > 0 || (budget.num_given > 0 && (wanted > num_tokens || price > seconds))) return;
  budget.num_given += wanted;
  share.num_tokens = wanted;
  budget.num_tokens -= wanted;
  budget.seconds -= price;
}

// Gives the tokens that fit the background's share of the step, even if they are few.
void Prompts::give_background(Pass& pass, PromptShare& share) const {
  const Sequence& sequence = *share.sequence;
  const double seconds = std::min(pass.background_seconds, pass.for_prompts.seconds);
  const std::int64_t wanted = wanted_of(share);
  std::int64_t given =
      std::min({wanted, pass.for_prompts.num_tokens, cost_.prompt_tokens_within(seconds, sequence.num_computed)});
  if (sequence.has_bound()) given = std::min(given, sequence.max_chunk - pass.num_bounded);
  if (given <= 0 || !cost_.known() || (options_.whole_prompts && given < wanted)) return;
  pass.background_seconds -= cost_.prompt_seconds(sequence.num_computed, given);
  add_to(pass, share, given);
}

void Prompts::add_to(Pass& pass, PromptShare& share, std::int64_t num_tokens) const {
  const std::int64_t from = share.sequence->num_computed + share.num_tokens;
  pass.for_prompts.num_given += num_tokens;
  share.num_tokens += num_tokens;
  pass.for_prompts.num_tokens -= num_tokens;
  pass.for_prompts.seconds -= cost_.prompt_seconds(from, num_tokens);
  if (share.sequence->has_bound()) pass.num_bounded += num_tokens;
}

// The remaining tokens, at most up to the next border where a recurrent state is kept.
std::int64_t Prompts::wanted_of(const PromptShare& share) const {
  const Sequence& sequence = *share.sequence;
  const std::int64_t from = sequence.num_computed + share.num_tokens;
  const std::int64_t wanted =
      std::min(sequence.num_remaining() - share.num_tokens, sequence.embedded_until(from) - from);
  const auto border = std::ranges::upper_bound(sequence.borders, sequence.num_computed);
  return !kv_.skips_tokens() && border != sequence.borders.end() ? std::min(wanted, *border - from) : wanted;
}

// The least tokens of a step's first prompt: as many as fit the step, but at least one.
std::int64_t Prompts::least_chunk(const Pass& pass, const Sequence& sequence, std::int64_t wanted) const {
  const std::int64_t least = std::min({wanted, kMinPromptChunk, pass.num_rows});
  const double seconds = pass.for_prompts.all_seconds;
  if (seconds == kNoTimeLimit) return least;
  return std::clamp<std::int64_t>(cost_.prompt_tokens_within(seconds, sequence.num_computed), 1, least);
}

// Adds the prompts to the plan in the order of importance. They have their blocks since they were admitted, and window
// parts for at least one block more; only a long text that a grammar forced needs further blocks.
void Prompts::place(Pass& pass) {
  std::ranges::sort(pass.prompts, older);
  for (const PromptShare& share : pass.prompts) {
    Sequence& sequence = *share.sequence;
    if (share.num_tokens == 0 || sequence.state != Sequence::State::kRunning) continue;
    const std::int64_t with_parts = kv_.tokens_with_parts(sequence.table, sequence.num_computed);
    const std::int64_t most = std::min(share.num_tokens, std::max<std::int64_t>(with_parts - sequence.num_computed, 1));
    const std::int64_t num_tokens =
        sequence.chunk_end(sequence.num_computed, sequence.num_computed + most) - sequence.num_computed;
    if (num_tokens > most || !running_.make_room(pass, sequence, num_tokens)) continue;
    pass.plan.terms.add_prompt(sequence.num_computed, num_tokens);
    pass.place(sequence, num_tokens);
    pass.plan.num_prompt_tokens += num_tokens;
  }
  for (const PromptShare& share : pass.prompts)
    share.sequence->keeps_blocks = false;
}

}  // namespace quire
