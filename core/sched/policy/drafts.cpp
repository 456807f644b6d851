#include "core/sched/policy/drafts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr double kMargin = 1.1;  // a draft must use its time so many times better than the step without it
// A recurrent state is copied before drafts. After a wrong one it is copied back, and rows are computed again.
constexpr double kMarginOfStates = 1.4;
constexpr std::int64_t kUnpricedDrafts = 8;  // per step, two for each sequence, before any price is known
constexpr std::int64_t kUnpricedOfSequence = 2;

}  // namespace

Drafts::Drafts(const SchedulerOptions& options, KvCache& kv, StepCost& cost, const TimeBounds& bounds,
               const Running& running)
    : options_(options), kv_(kv), cost_(cost), bounds_(bounds), running_(running) {
  drafted_.reserve(static_cast<std::size_t>(options.max_num_seqs));
  chosen_.reserve(kMostDraftsOfStep);
}

// The worst comes first; among equals the later entry.
bool Drafts::Drafted::operator<(const Drafted& other) const {
  const double mine = probability * other.seconds;
  const double others = other.probability * seconds;
  return mine != others ? mine < others : entry > other.entry;
}

// Each draft is a row that yields a token with some probability. Drafts are added, best first, while they yield more
// tokens for their time than the step's streams, so that drafts slow down no load. The time of prompts does not count:
// their rows are computed anyway.
void Drafts::fit(Pass& pass) {
  if (!pass.limits.takes_drafts || pass.is_short_of_memory) return;
  collect(pass);
  if (drafted_.empty()) return;
  std::size_t num_left = choose(pass);
  for (const std::size_t entry : chosen_) {
    if (num_left == 0) return;
    if (place(pass, pass.plan.entries[entry])) --num_left;
  }
}

// Fills chosen_ and returns how many of them to verify. The time is not linear in rows: several drafts may pay where
// one does not.
std::size_t Drafts::choose(const Pass& pass) {
  const StepPlan& plan = pass.plan;
  chosen_.clear();
  const bool is_priced = cost_.known();
  const bool is_alone = !bounds_.expects_prompts(pass);  // the curve was measured in steps without prompts
  const auto num_rows = static_cast<std::int64_t>(plan.terms.num_streams);
  double linear = cost_.seconds(plan.terms);
  double num_expected = static_cast<double>(plan.num_streaming);
  struct Yield {
    double num_tokens, seconds;
  } chosen{num_expected, linear};
  std::size_t num_chosen = 0;
  double limit = std::min(bounds_.for_streams(pass, bounds_.longest()), pass.limits.max_seconds);
  if (plan.num_streaming > 1 && options_.target_itl_ms > 0.0) limit = std::min(limit, options_.target_itl_ms / 1000.0);
  const std::int64_t most = most_of_step(pass);
  while (!drafted_.empty() && std::ssize(chosen_) < most) {
    std::pop_heap(drafted_.begin(), drafted_.end());
    Drafted best = drafted_.back();
    drafted_.pop_back();
    const double ratio = is_alone ? row_curve_.ratio(num_rows + std::ssize(chosen_) + 1) : 1.0;
    const Yield now{num_expected + best.probability, (linear + best.seconds) * ratio};
    if (is_priced && now.seconds > limit) continue;
    chosen_.push_back(best.entry);
    num_expected = now.num_tokens;
    linear += best.seconds;
    const double more = (now.num_tokens - chosen.num_tokens) * chosen.seconds;
    if (!is_priced || more > kMargin * chosen.num_tokens * (now.seconds - chosen.seconds)) {
      chosen = now;
      num_chosen = chosen_.size();
    }
    const Sequence& sequence = *plan.entries[best.entry].sequence;
    const auto num_proposed = static_cast<std::int64_t>(sequence.drafts.size());
    const std::int64_t most_of_it = is_priced ? num_proposed : std::min(num_proposed, kUnpricedOfSequence);
    if (++best.num_taken >= most_of_it) continue;
    best.probability *= sequence.draft_rate;
    drafted_.push_back(best);
    std::push_heap(drafted_.begin(), drafted_.end());
  }
  return is_alone ? or_measurement(plan, num_chosen) : num_chosen;
}

// Now and then chooses another number than the best, to measure its time.
std::size_t Drafts::or_measurement(const StepPlan& plan, std::size_t num_best) {
  const auto num_streams = static_cast<std::int64_t>(plan.terms.num_streams);
  if (num_best == 0) {
    row_curve_.note_refused(num_streams + 1);
    return 0;
  }
  const auto rows = [&](std::size_t num_drafts) { return num_streams + static_cast<std::int64_t>(num_drafts); };
  const std::size_t least = (num_best + 1) / 2;
  const std::size_t most = std::min(num_best + least, chosen_.size());
  return static_cast<std::size_t>(row_curve_.rows_to_measure(rows(num_best), rows(least), rows(most)) - num_streams);
}

void Drafts::observe(const StepPlan& committed, double seconds) {
  const bool is_verifying = committed.num_drafts > 0 && committed.terms.num_prompt_tokens == 0.0 && cost_.known();
  if (!is_verifying) return cost_.observe(committed.terms, seconds);
  const auto num_rows = static_cast<std::int64_t>(committed.terms.num_streams);
  row_curve_.observe(num_rows, seconds, cost_.seconds(committed.terms));
  cost_.observe(committed.terms, seconds / row_curve_.ratio(num_rows));
}

// The most drafts of a step: the memory for logits is bounded, and prompts need rows as well.
std::int64_t Drafts::most_of_step(const Pass& pass) const {
  const std::int64_t most = cost_.known() ? kMostDraftsOfStep : kUnpricedDrafts;
  return std::min(most, bounds_.expects_prompts(pass) ? pass.num_rows / 2 : pass.num_rows);
}

// Only a sequence whose last token is computed in the step can have a draft.
void Drafts::collect(const Pass& pass) {
  drafted_.clear();
  const StepPrice price = cost_.price();
  for (std::size_t i = 0; std::cmp_less(i, pass.plan.num_streaming); ++i) {
    const StepEntry& entry = pass.plan.entries[i];
    const Sequence& sequence = *entry.sequence;
    if (pass.has_foreground && sequence.request->is_background) continue;
    if (sequence.drafts.empty() || entry.num_tokens != sequence.num_remaining()) continue;
    const double ktokens = static_cast<double>(sequence.num_tokens()) / 1000.0;
    drafted_.push_back({i, sequence.draft_rate, price.stream + ktokens * price.stream_ktoken});
  }
  std::make_heap(drafted_.begin(), drafted_.end());
}

// A shared block counts as no room, since it must not be written before the plan's copies; nor does one that the step
// has yet to copy to a tier or from it.
std::int64_t Drafts::take_room(Sequence& sequence, std::int64_t most) {
  const auto tail = static_cast<std::size_t>(sequence.num_computed / kv_.block_size());
  const std::vector<BlockId>& blocks = sequence.table.blocks;
  if (tail < blocks.size() && kv_.pool().num_references(blocks[tail]) > 1) return 0;
  const bool needs_block = kv_.blocks_for(sequence.num_tokens() + most) > std::ssize(blocks);
  if (needs_block && has_block_to_spare()) {
    std::vector<BlockCopy> none;
    kv_.grow(sequence.table, sequence.num_computed, sequence.num_tokens() + most, none);
    QUIRE_CHECK(none.empty(), "a block of one sequence is not copied");
  }
  std::size_t end = tail;  // end of the blocks that may be written now
  while (end < blocks.size() && !kv_.is_moving_next(blocks[end]))
    ++end;
  const std::int64_t num_free = static_cast<std::int64_t>(end) * kv_.block_size() - sequence.num_tokens();
  return std::clamp<std::int64_t>(num_free, 0, most);
}

DraftBudget Drafts::budget() const {
  const StepPrice price = cost_.price();
  StepTerms terms;
  for (const Sequence* sequence : running_.sequences()) {
    if (sequence->streams()) terms.add_stream(sequence->num_computed);
  }
  return {cost_.known() ? cost_.seconds(terms) : 0.0, terms.num_streams, price.stream,
          kv_.skips_tokens() ? kMargin : kMarginOfStates};
}

bool DraftBudget::take(double num_expected, std::int64_t num_sequences, double round) {
  if (!is_worth(num_expected, num_sequences, round)) return false;
  if (seconds_ == 0.0 || round == 0.0) {
    ++num_unpriced_;
    return true;
  }
  seconds_ += round + static_cast<double>(num_sequences) * row_;
  num_tokens_ += num_expected;
  return true;
}

bool DraftBudget::is_worth(double num_expected, std::int64_t num_sequences, double round) const {
  if (seconds_ == 0.0 || round == 0.0) return num_unpriced_ < kUnpricedOfSequence;
  const double seconds = round + static_cast<double>(num_sequences) * row_;
  return num_expected * seconds_ > margin_ * num_tokens_ * seconds;
}

// Whether a draft may take a block: each running sequence must keep one to grow.
bool Drafts::has_block_to_spare() const {
  return kv_.room_of_blocks(running_.size() + 1).fits(kv_.available());
}

// False if the draft needs a block, a window part or a place for a recurrent state that cannot be spared: nothing is
// preempted for a draft, now or in the next step.
bool Drafts::place(Pass& pass, StepEntry& entry) {
  StepPlan& plan = pass.plan;
  Sequence& sequence = *entry.sequence;
  const std::int64_t end = sequence.num_computed + entry.num_tokens;
  const bool needs_block = kv_.blocks_for(end + 1) > static_cast<std::int64_t>(sequence.table.blocks.size());
  if (needs_block && !has_block_to_spare()) return false;
  if (!kv_.grow(sequence.table, sequence.num_computed, end + 1, plan.transfers.copies)) return false;
  const bool is_first = entry.num_drafts == 0;
  // Sequences that could start in this step need a state each.
  if (is_first && !kv_.keep_before_drafts(sequence.table, running_.num_places_left(), plan.transfers.copies))
    return false;
  plan.terms.add_stream(end, 1);
  ++entry.num_tokens;
  ++entry.num_drafts;
  ++plan.num_tokens;
  ++plan.num_drafts;
  ++sequence.num_scheduled;
  --pass.num_rows;
  ++pass.num_bounded;  // rows of logits, like the rows of prompts' logprobs
  return true;
}

}  // namespace quire
