#include "core/sched/policy/start_candidates.h"

#include <algorithm>

#include "core/sched/importance.h"

namespace quire {

namespace {

// Waiting sequences considered per key: the first in policy order, and as many of the shortest.
constexpr std::size_t kWindow = 8;
constexpr std::size_t kKeyWindow = 3;
constexpr int kMaxBypassed = 8;           // times that later ones may start before the head
constexpr int kMaxChoiceBypassed = 2;     // the same for a further choice, so that an old request's choices all end
constexpr std::int64_t kPartsOfStep = 4;  // a quarter of the window parts at most is kept for a step's prompt tokens

}  // namespace

StartCandidates::StartCandidates(const SchedulerOptions& options, KvCache& kv, WaitingQueue& waiting,
                                 const Lists& lists, const Background& background, const Running& running)
    : options_(options),
      kv_(kv),
      waiting_(waiting),
      lists_(lists),
      background_(background),
      running_(running),
      parking_(kv, waiting) {
  constexpr std::size_t kMostCollected = kNumLanes * (kMostOfLane + WaitingQueue::kMostInTurn);
  collected_.reserve(kMostCollected);
  candidates_.reserve(kMostCollected);
}

// Sequences that must wait leave their lane, and others are considered instead.
bool StartCandidates::find(const Pass& pass, Lanes lanes) {
  if (!lists_.has_place()) lanes &= ~both(Lane::kLists);
  bool has_left = true;
  for (int i = 0; i < kMostLooks && has_left; ++i) {
    has_left = false;
    candidates_.clear();
    collected_.clear();
    waiting_.collect(lanes, options_.policy == SchedulerPolicy::kFair ? kKeyWindow : kWindow, kMostOfLane, collected_);
    for (Sequence* sequence : collected_) {
      if (sequence->request->is_background && !background_.has_room(*sequence)) {
        has_left |= waiting_.set_aside(*sequence);
        continue;
      }
      const PrefixMatch match = kv_.match(sequence->table, sequence->tokens, sequence->prefix_limit());
      if (waits(pass, *sequence, match)) {
        has_left = true;
        continue;
      }
      const bool counts_cached = options_.prefix_aware || sequence->has_started;
      const std::int64_t num_found = counts_cached ? kv_.match_tokens(match) : 0;
      candidates_.push_back({sequence, match, PromptOrder(waiting_, *sequence, sequence->num_tokens() - num_found)});
    }
  }
  find_head();
  return !candidates_.empty();
}

bool StartCandidates::waits(const Pass& pass, Sequence& sequence, const PrefixMatch& match) {
  const std::int64_t num_found = kv_.match_tokens(match);
  sequence.awaits_media = sequence.embedded_until(num_found) == num_found;
  return sequence.awaits_media || parking_.parks(pass, sequence, match);
}

void StartCandidates::find_head() {
  head_ = blocked_ = nullptr;
  const Candidate* first = nullptr;
  for (const Candidate& each : candidates_) {
    if (first == nullptr || waiting_.comes_before(*each.sequence, *first->sequence)) first = &each;
  }
  if (first == nullptr) return;
  head_ = first->sequence;
  if (running_.empty() || room_needed(*head_, first->match).fits(kv_.available())) return;
  blocked_ = head_;
  head_->num_bypassed = kMaxBypassed;  // it starts next, once there is room
  room_beside_blocked_ = kv_.capacity();
  room_beside_blocked_ -= kv_.room_needed({}, {}, head_->num_tokens());
  room_beside_blocked_.parts -= parts_of_step();
  for (const Sequence* running : running_.sequences()) {
    if (running->first_start >= head_->num_started_before) room_beside_blocked_ -= most_room(*running);
  }
}

bool StartCandidates::set_roomless_aside() {
  if (running_.empty()) return false;
  bool has_left = false;
  std::erase_if(candidates_, [&](const Candidate& each) {
    if (has_room(*each.sequence, each.match)) return false;
    has_left |= waiting_.set_aside(*each.sequence);
    return true;
  });
  return has_left;
}

void StartCandidates::keep_fitting(const KvRoom& room) {
  std::erase_if(candidates_, [&](const Candidate& each) {
    return !room_needed(*each.sequence, each.match).fits(room) || !may_bypass(*each.sequence);
  });
}

Sequence* StartCandidates::take_next(const Pass& pass) {
  auto best = candidates_.cend();
  for (auto each = candidates_.cbegin(); each != candidates_.cend(); ++each) {
    const bool is_head = each->sequence == head_;
    const int most_bypassed = each->sequence->is_choice ? kMaxChoiceBypassed : kMaxBypassed;
    if (is_head && head_->num_bypassed >= most_bypassed) {
      best = each;
      break;
    }
    const bool is_served_next = is_served(pass, *each) || (is_head && is_oldest(pass, *head_));
    if (is_served_next && (best == candidates_.cend() || goes_before(*each, *best))) best = each;
  }
  if (best == candidates_.cend()) return nullptr;
  Sequence* const next = best->sequence;
  candidates_.erase(best);
  return next;
}

StartCandidates::Iterator StartCandidates::first_in_order() const {
  return std::min_element(candidates_.cbegin(), candidates_.cend(),
                          [&](const Candidate& a, const Candidate& b) { return goes_before(a, b); });
}

const StartCandidates::Candidate& StartCandidates::first() const {
  return *first_in_order();
}

StartCandidates::Candidate StartCandidates::take_first() {
  const Iterator first = first_in_order();
  const Candidate taken = *first;
  candidates_.erase(first);
  return taken;
}

// Under kPriority waiting outweighs the class; within a class, and otherwise, one of many goes behind the others, and
// the shorter first.
bool StartCandidates::goes_before(const Candidate& a, const Candidate& b) const {
  if (a.order.importance != b.order.importance) return importance(*a.sequence) < importance(*b.sequence);
  if (a.sequence->is_one_of_many() != b.sequence->is_one_of_many()) return b.sequence->is_one_of_many();
  return a.order < b.order;
}

// Whether no prompt in progress is more important, so that the head gets the oldest prompt's share of each step.
bool StartCandidates::is_oldest(const Pass& pass, const Sequence& head) const {
  return std::ranges::none_of(pass.prompts,
                              [&](const PromptShare& share) { return more_important(share.sequence, &head); });
}

// Whether prompts in progress that come before this candidate leave it tokens of the step.
bool StartCandidates::is_served(const Pass& pass, const Candidate& candidate) const {
  std::int64_t left = pass.for_prompts.num_tokens;
  std::int64_t bounded_left = candidate.sequence->max_chunk;
  for (const PromptShare& share : pass.prompts) {
    if (left <= 0 || candidate.order < share.order) break;
    left -= share.sequence->num_remaining();
    if (candidate.sequence->has_bound() && share.sequence->has_bound()) bounded_left -= share.sequence->num_remaining();
  }
  return left > 0 && bounded_left > 0;
}

bool StartCandidates::may_bypass(const Sequence& sequence) const {
  return blocked_ == nullptr || blocked_ == &sequence || most_room(sequence).fits(room_beside_blocked_);
}

bool StartCandidates::has_room(const Sequence& sequence, const PrefixMatch& match) {
  const KvRoom need = room_needed(sequence, match);
  const bool fits = running_.empty() || need.fits(kv_.available());
  if (!fits) note_lack(need);
  return fits && may_bypass(sequence);
}

// Includes a block for each running sequence to grow, without which the new sequence would soon be preempted.
KvRoom StartCandidates::room_needed(const Sequence& sequence, const PrefixMatch& match) const {
  KvRoom room = kv_.room_needed(sequence.table, match, sequence.num_tokens());
  room += kv_.room_of_blocks(running_.size());
  room.parts += parts_of_step();
  return room;
}

// The window parts kept for a step's prompt tokens, at most a quarter of all, so that prompts advance by large chunks.
std::int64_t StartCandidates::parts_of_step() const {
  return std::min(kv_.blocks_for(options_.max_num_batched_tokens), kv_.capacity().parts / kPartsOfStep);
}

void StartCandidates::note_start(const Sequence& sequence) {
  if (head_ == &sequence) head_ = nullptr;
  if (head_ == nullptr) return;
  if (head_ == blocked_) {
    room_beside_blocked_ -= most_room(sequence);
  } else {
    ++head_->num_bypassed;
  }
}

StartCandidates::Lack& StartCandidates::lack() {
  if (lack_.num_changes != waiting_.num_changes()) lack_ = {{}, 0, waiting_.num_changes()};
  return lack_;
}

void StartCandidates::note_lack(const KvRoom& need) {
  const KvRoom least = lack().need.value_or(need);
  lack_.need = KvRoom{std::min(least.blocks, need.blocks), std::min(least.parts, need.parts)};
}

bool StartCandidates::has_none() {
  if (!lack().need || running_.empty()) return false;
  return lack_.num_turns >= waiting_.turns_of_all() && !lack_.need->fits(kv_.available());
}

void StartCandidates::begin_turn() {
  ++lack().num_turns;
}

}  // namespace quire
