#include <algorithm>

#include "core/sched/importance.h"
#include "core/sched/scheduler.h"

namespace quire {

namespace {

// Waiting sequences that are looked at: the first of the policy's order and the shortest; those of several keys.
constexpr std::size_t kWindow = 8;
constexpr std::size_t kKeyWindow = 3;
constexpr int kCollections = 4;        // times in a step that those are replaced which turn out to wait for others
constexpr int kMaxBypassed = 8;        // times that the first in the policy's order lets a later one start before it
constexpr int kMaxChoiceBypassed = 2;  // the same for a further choice, so that an old request's choices all end
constexpr int kMostDisplaced = 4;      // choices in one step
constexpr std::int32_t kPlacesNotOfLists = 4;  // one in so many is kept from what continues a list
constexpr std::int64_t kPartsOfStep = 4;       // of windows' parts, at most a quarter is left to a step's prompt tokens
constexpr std::int64_t kTurn = 8;              // steps for which one of many keeps a place that it has come back to

// A prompt of which so much is cached continues a conversation, rather than just beginning like many others.
constexpr double kReturningPart = 0.9;

CacheClass cache_class_of(const Request& request, bool is_returning) {
  if (request.is_background) return CacheClass::kBackground;
  if (request.is_retained) return CacheClass::kRetained;
  return is_returning ? CacheClass::kReturning : CacheClass::kPlain;
}

}  // namespace

// In policy order, but a shorter one first as long as the prompts in progress leave it something of this step.
void Scheduler::admit_waiting(StepPlan& plan) {
  const bool has_seen_all = num_turns_blocked_ >= waiting_.turns_of_all();
  if (has_seen_all && blocked_need_ && !running_.empty() && !blocked_need_->fits(kv_.available())) return;
  ++num_turns_blocked_;
  int num_looks = 0;
  bool has_started = true;
  while (has_started && num_places_left() > 0 && find_candidates(kStartingLanes)) {
    has_started = set_roomless_aside() && ++num_looks < kCollections;  // others are looked at in their place
    for (Candidate* chosen = choose_candidate(); chosen != nullptr && num_places_left() > 0;
         chosen = choose_candidate()) {
      Sequence& sequence = *chosen->sequence;
      candidates_.erase(candidates_.begin() + (chosen - candidates_.data()));
      if (!try_start(plan, sequence)) continue;
      has_started = true;
      if (options_.policy == SchedulerPolicy::kFair) break;  // the key has been charged: another may be next
    }
  }
}

// All places are taken: a request that has none gets one from a request or a list that has several, or under kPriority
// from a less important one.
void Scheduler::take_places(StepPlan& plan) {
  if (num_running_choices_ + num_running_of_lists_ == 0 && !by_class()) return;
  if (!find_candidates(kPlacelessLanes)) return;
  set_roomless_aside();
  for (int i = 0; i < kMostDisplaced && !candidates_.empty(); ++i) {
    const auto best = std::min_element(candidates_.begin(), candidates_.end(),
                                       [&](const Candidate& a, const Candidate& b) { return goes_before(a, b); });
    Sequence* const displaced = choose_displaced(*best->sequence);
    Sequence& sequence = *best->sequence;
    const bool fits = room_needed(*best).fits(kv_.available());
    candidates_.erase(best);
    if (displaced == nullptr || !fits) continue;
    preempt(plan, *displaced);
    try_start(plan, sequence);
  }
}

// The least important choice or list's prompt that has had its turn, or under kPriority the least important sequence of
// a class below the waiting one's.
Sequence* Scheduler::choose_displaced(const Sequence& waiting) const {
  const auto gives_place = [&](const Sequence* running) {
    if (running->is_one_of_many() && num_steps_ >= running->turn_end) return true;
    return by_class() && running->request->priority > waiting.request->priority && running->level > waiting.level;
  };
  const auto found = std::find_if(running_.rbegin(), running_.rend(), gives_place);
  return found == running_.rend() ? nullptr : *found;
}

// Others find a place beside lists.
bool Scheduler::has_list_place() const {
  return num_running_of_lists_ < options_.max_num_seqs - options_.max_num_seqs / kPlacesNotOfLists;
}

// False where nothing could start. Sequences that turn out to wait for something leave the lane, and others are looked
// at in their place.
bool Scheduler::find_candidates(Lanes lanes) {
  if (!has_list_place()) lanes &= ~both(Lane::kLists);
  bool has_left = true;
  for (int i = 0; i < kCollections && has_left; ++i) {
    has_left = false;
    candidates_.clear();
    collected_.clear();
    waiting_.collect(lanes, options_.policy == SchedulerPolicy::kFair ? kKeyWindow : kWindow, kMostOfLane, collected_);
    for (Sequence* sequence : collected_) {
      if (sequence->request->is_background && !has_background_room(*sequence)) {
        has_left |= waiting_.set_aside(*sequence);
        continue;
      }
      const PrefixMatch match = kv_.match(sequence->table, sequence->tokens, sequence->prefix_limit());
      if (waits_for_media(*sequence, match) || parks(*sequence, match)) {
        has_left = true;
        continue;
      }
      const bool counts_cached = options_.prefix_aware || sequence->has_started;
      const std::int64_t num_found = counts_cached ? kv_.match_tokens(match) : 0;
      candidates_.push_back({sequence, match, order_of(*sequence, sequence->num_tokens() - num_found)});
    }
  }
  find_head();
  return !candidates_.empty();
}

// Candidates for which there is no room leave the candidates, and the lane in which they waited. Whether that makes
// place for others in it.
bool Scheduler::set_roomless_aside() {
  if (running_.empty()) return false;
  bool has_left = false;
  std::erase_if(candidates_, [&](const Candidate& each) {
    const KvRoom need = room_needed(each);
    const bool has_room = need.fits(kv_.available());
    if (!has_room) note_blocked(need);
    if (has_room && may_bypass(*each.sequence)) return false;
    has_left |= waiting_.set_aside(*each.sequence);
    return true;
  });
  return has_left;
}

void Scheduler::note_blocked(const KvRoom& need) {
  const KvRoom least = blocked_need_.value_or(need);
  blocked_need_ = KvRoom{std::min(least.blocks, need.blocks), std::min(least.parts, need.parts)};
}

void Scheduler::find_head() {
  head_ = blocked_ = nullptr;
  const Candidate* first = nullptr;
  for (const Candidate& each : candidates_) {
    if (first == nullptr || waiting_.comes_before(*each.sequence, *first->sequence)) first = &each;
  }
  if (first == nullptr) return;
  head_ = first->sequence;
  if (!running_.empty() && !room_needed(*first).fits(kv_.available())) {
    blocked_ = head_;
    head_->num_bypassed = kMaxBypassed;  // once there is room it is the next
    room_beside_blocked_ = kv_.capacity();
    room_beside_blocked_ -= kv_.room_needed({}, {}, head_->num_tokens());
    room_beside_blocked_.parts -= parts_of_step();
    for (const Sequence* running : running_) {
      if (running->first_start >= head_->num_started_before) room_beside_blocked_ -= most_room(*running);
    }
  }
}

Scheduler::Candidate* Scheduler::choose_candidate() {
  Candidate* best = nullptr;
  for (Candidate& each : candidates_) {
    const bool is_head = each.sequence == head_;
    const int most_bypassed = each.sequence->is_choice ? kMaxChoiceBypassed : kMaxBypassed;
    if (is_head && head_->num_bypassed >= most_bypassed) return &each;
    const bool is_served_next = is_served(each) || (is_head && is_oldest(*head_));
    if (is_served_next && (best == nullptr || goes_before(each, *best))) best = &each;
  }
  return best;
}

// Under kPriority waiting outweighs the class; within a class, and otherwise, one of many goes behind the others, and
// the shorter first.
bool Scheduler::goes_before(const Candidate& a, const Candidate& b) const {
  if (a.order.priority != b.order.priority) return importance(*a.sequence) < importance(*b.sequence);
  if (a.sequence->is_one_of_many() != b.sequence->is_one_of_many()) return b.sequence->is_one_of_many();
  return a.order < b.order;
}

// Of all prompts: it has a part of each step of its own.
bool Scheduler::is_oldest(const Sequence& head) const {
  return std::none_of(shares_.begin(), shares_.end(),
                      [&](const Share& share) { return more_important(share.sequence, &head); });
}

// Whether the prompts in progress that go before leave anything of the step.
bool Scheduler::is_served(const Candidate& candidate) const {
  std::int64_t left = prompt_budget_;
  std::int64_t bounded_left = candidate.sequence->max_chunk;
  for (const Share& share : shares_) {
    if (left <= 0 || candidate.order < share.order) break;
    left -= share.sequence->num_remaining();
    if (candidate.sequence->has_bound() && share.sequence->has_bound()) bounded_left -= share.sequence->num_remaining();
  }
  return left > 0 && bounded_left > 0;
}

// It leaves the candidates with their next collection, until media_arrived().
bool Scheduler::waits_for_media(Sequence& sequence, const PrefixMatch& match) const {
  const std::int64_t num_found = kv_.match_tokens(match);
  sequence.awaits_media = sequence.embedded_until(num_found) == num_found;
  return sequence.awaits_media;
}

bool Scheduler::parks(Sequence& sequence, const PrefixMatch& match) {
  if (!kv_.prefix_caching()) return false;
  const Park park = kv_.skips_tokens() ? computed_by_another(sequence, match) : state_made_by_another(sequence, match);
  if (park.behind == nullptr) return false;
  waiting_.park(sequence, *park.behind, park.until);
  return true;
}

// A sequence never waits for a waiting one: the other is running, and continues whatever this sequence does.
Scheduler::Park Scheduler::computed_by_another(const Sequence& sequence, const PrefixMatch& match) const {
  const std::int64_t position = (std::int64_t{sequence.table.num_entered} + match.num_blocks) * kv_.block_size();
  const std::int64_t useful = std::min<std::int64_t>(kv_.block_size(), sequence.prefix_limit() - position);
  if (useful <= match.num_partial_tokens) return {};
  for (const Share& share : shares_) {
    const Sequence& other = *share.sequence;
    if (other.prompt_computed() || other.table.node != match.node) continue;
    const std::int64_t begin = std::int64_t{other.table.num_entered} * kv_.block_size();
    if (other.num_tokens() - begin < useful) continue;
    const auto wanted = sequence.tokens.begin() + position;
    if (std::equal(wanted, wanted + useful, other.tokens.begin() + begin))
      return {share.sequence, alike_until(sequence, other)};
  }
  return {};
}

std::int64_t Scheduler::alike_until(const Sequence& sequence, const Sequence& other) const {
  const std::int64_t limit = std::min(sequence.prefix_limit(), other.num_tokens());
  const std::int64_t known = std::min(other.num_computed, limit);
  const auto differs =
      std::mismatch(sequence.tokens.begin() + known, sequence.tokens.begin() + limit, other.tokens.begin() + known);
  return kv_.blocks_for(differs.first - sequence.tokens.begin()) * kv_.block_size();
}

// With recurrent layers only what stands before a border is shared: its state is kept there.
Scheduler::Park Scheduler::state_made_by_another(const Sequence& sequence, const PrefixMatch& match) const {
  if (!kv_.can_admit()) return {};
  const std::int64_t found = kv_.match_tokens(match);
  for (const Share& share : shares_) {
    const Sequence& other = *share.sequence;
    if (other.table.root != sequence.table.root) continue;
    const std::int64_t least = std::max(other.num_computed, found);
    for (auto border = other.borders.rbegin(); border != other.borders.rend() && *border > least; ++border) {
      if (*border > sequence.prefix_limit()) continue;
      if (std::equal(other.tokens.begin(), other.tokens.begin() + *border, sequence.tokens.begin()))
        return {share.sequence, *border};
    }
  }
  return {};
}

// For a step's prompt tokens, as far as that leaves most parts to sequences: without them prompts advance by small
// chunks.
std::int64_t Scheduler::parts_of_step() const {
  return std::min(kv_.blocks_for(options_.max_num_batched_tokens), kv_.capacity().parts / kPartsOfStep);
}

// One block to grow for each that runs: without it the newcomer would soon be preempted again.
KvRoom Scheduler::room_needed(const Candidate& candidate) const {
  const Sequence& sequence = *candidate.sequence;
  KvRoom room = kv_.room_needed(sequence.table, candidate.match, sequence.num_tokens());
  room += kv_.room_of_blocks(num_running());
  room.parts += parts_of_step();
  return room;
}

// All that it can come to need.
KvRoom Scheduler::most_room(const Sequence& sequence) const {
  return kv_.most_room(sequence.most_tokens());
}

// Where there is no room for the head, later ones start as long as there is going to be room for it beside them: it
// waits no longer than for requests that ran when it began to wait, those that were preempted since included.
bool Scheduler::may_bypass(const Sequence& sequence) const {
  return blocked_ == nullptr || blocked_ == &sequence || most_room(sequence).fits(room_beside_blocked_);
}

bool Scheduler::try_start(StepPlan& plan, Sequence& sequence) {
  if (sequence.continues_list && !has_list_place()) return false;
  const PrefixMatch match = kv_.match(sequence.table, sequence.tokens, sequence.prefix_limit());
  if (waits_for_media(sequence, match) || parks(sequence, match)) return false;
  const KvRoom need = room_needed({&sequence, match, {}});
  const bool has_room = running_.empty() || need.fits(kv_.available());
  if (!has_room) note_blocked(need);
  if (!has_room || !may_bypass(sequence) ||
      !kv_.admit(sequence.table, match, sequence.num_tokens(), plan.transfers.copies)) {
    waiting_.set_aside(sequence);
    return false;
  }
  if (head_ != nullptr && head_ != &sequence) {
    if (head_ == blocked_) {
      room_beside_blocked_ -= most_room(sequence);
    } else {
      ++head_->num_bypassed;
    }
  } else {
    head_ = nullptr;
  }
  start(plan, sequence, match);
  return true;
}

void Scheduler::start(StepPlan& plan, Sequence& sequence, const PrefixMatch& match) {
  waiting_.remove(sequence);
  sequence.num_computed = kv_.match_tokens(match);
  const Share share{&sequence, order_of(sequence), 0};  // its key pays from the next step on
  if (!sequence.has_started) {
    sequence.has_started = true;
    sequence.num_cached_tokens = sequence.num_computed;
    const bool is_returning =
        static_cast<double>(sequence.num_computed) >= kReturningPart * static_cast<double>(sequence.num_tokens());
    sequence.table.cache_class = cache_class_of(*sequence.request, is_returning);
    prefix_queries_ += static_cast<std::uint64_t>(sequence.num_tokens());
    prefix_hits_ += static_cast<std::uint64_t>(sequence.num_computed);
    waiting_.charge(sequence, sequence.num_remaining());
    plan.started.push_back(&sequence);
  } else {
    sequence.turn_end = num_steps_ + kTurn;
  }
  if (sequence.first_start < 0) sequence.first_start = num_started_;
  ++num_started_;
  sequence.num_bypassed = 0;
  sequence.keeps_blocks = true;
  enter_running(sequence);
  const auto place = std::upper_bound(shares_.begin(), shares_.end(), share,
                                      [](const Share& a, const Share& b) { return a.order < b.order; });
  shares_.insert(place, share);
}

}  // namespace quire
