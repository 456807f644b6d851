#include "core/sched/running.h"

#include <algorithm>

#include "core/sched/importance.h"
#include "kernels/check.h"

namespace quire {

namespace {

// Whether it keeps its blocks until commit.
bool is_kept(const Sequence& sequence) {
  return sequence.num_scheduled > 0 || sequence.keeps_blocks;
}

// Whether `a` holds more blocks per generated token, so that preempting it frees more for its cost.
bool holds_more_for_less(const Sequence& a, const Sequence& b) {
  const auto blocks_a = static_cast<std::int64_t>(a.table.blocks.size());
  const auto blocks_b = static_cast<std::int64_t>(b.table.blocks.size());
  return blocks_a * (b.num_generated() + 1) > blocks_b * (a.num_generated() + 1);
}

}  // namespace

Running::Running(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting, const StepCost& cost)
    : options_(options), kv_(kv), waiting_(waiting), cost_(cost) {
  sequences_.reserve(static_cast<std::size_t>(options.max_num_seqs));
}

void Running::enter(Sequence& sequence) {
  sequence.state = Sequence::State::kRunning;
  if (sequence.first_start < 0) sequence.first_start = num_started_;
  ++num_started_;
  num_choices_ += sequence.is_choice ? 1 : 0;
  num_of_lists_ += sequence.continues_list ? 1 : 0;
  sequences_.insert(std::upper_bound(sequences_.begin(), sequences_.end(), &sequence, more_important), &sequence);
}

void Running::leave(Sequence& sequence) {
  const auto place = std::lower_bound(sequences_.begin(), sequences_.end(), &sequence, more_important);
  QUIRE_CHECK(place != sequences_.end() && *place == &sequence, "a running sequence has one place");
  sequences_.erase(place);
  num_choices_ -= sequence.is_choice ? 1 : 0;
  num_of_lists_ -= sequence.continues_list ? 1 : 0;
  waiting_.wake(sequence);
}

void Running::release(Sequence& sequence, WhenEvicted when_evicted) {
  const std::int64_t num_known = sequence.num_known_computed();  // the pending token may have been drawn since
  kv_.commit(sequence.table, sequence.tokens, num_known);
  if (num_known < sequence.num_computed)
    kv_.drop_state(sequence.table);  // the state includes a token that is not known
  kv_.release(sequence.table, sequence.tokens, num_known, when_evicted);
}

bool Running::make_room(Pass& pass, Sequence& sequence, std::int64_t num_tokens) {
  const std::int64_t wanted = sequence.num_computed + num_tokens;
  while (!kv_.grow(sequence.table, sequence.num_computed, wanted, pass.plan.transfers.copies)) {
    Sequence* const victim = choose_victim(sequence);
    if (victim == &sequence) return false;
    preempt(pass, *victim);
  }
  return true;
}

// The least important sequence that is not in the plan, or `sequence` itself if there is none below it. Among sequences
// that arrived together (the choices of one request), the one with the most blocks per generated token.
Sequence* Running::choose_victim(const Sequence& sequence) const {
  auto candidate = sequences_.rbegin();
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

void Running::preempt(Pass& pass, Sequence& sequence) {
  leave(sequence);
  const bool swapped = swaps(sequence, pass.limits);
  release(sequence, swapped ? WhenEvicted::kOffered : WhenEvicted::kForgotten);
  num_swaps_ += swapped ? 1 : 0;
  sequence.num_computed = 0;
  sequence.state = Sequence::State::kWaiting;
  sequence.num_started_before = num_started_;
  ++sequence.num_preemptions;
  ++num_preemptions_;
  waiting_.add(sequence);
  pass.plan.preempted.push_back(&sequence);
}

// Counts full unshared blocks: shared ones are not lost, and one that is not full is computed again in any case.
bool Running::swaps(const Sequence& victim, const StepLimits& limits) const {
  if (!limits.swap_block_s || options_.preemption == Preemption::kRecompute) return false;
  if (options_.preemption == Preemption::kSwap) return true;
  const auto full = std::span(victim.table.blocks).first(static_cast<std::size_t>(victim.table.num_entered));
  const std::int64_t num_own =
      std::count_if(full.begin(), full.end(), [&](BlockId block) { return kv_.pool().num_references(block) == 1; });
  return static_cast<double>(num_own) * *limits.swap_block_s <= cost_.prompt_seconds(0, num_own * kv_.block_size());
}

}  // namespace quire
