// LowerTier: what is asked of the shared store, and what is new to it.
#include <algorithm>
#include <new>
#include <utility>

#include "core/kv/lower_tier.h"

namespace quire {

namespace {

constexpr double kNewestAnswer = 0.2;      // of what an answer took, in the average
constexpr double kRefusedAnswer = 0.99;    // what is left of that each time that it was too long
constexpr double kShareOfComputing = 0.5;  // of what it could save, asking may take

}  // namespace

// Asks which of the blocks behind those that are known here the store has; once for each table. A model whose
// sequences continue only where a state or parts are kept is asked for all blocks: the store may have those.
bool LowerTier::look_up(Restore& restore) {
  if (shared_ == nullptr || restore.table->is_looked_up || !shared_->is_up()) return false;
  std::int64_t index = 0;
  for (PrefixNode node = restore.table->root; layout_.groups().empty(); ++index) {
    if ((index + 1) * kv_.block_size() > restore.limit) break;
    node = child(restore, node, index);
    if (node == kNoNode || (index_.block(node) == kNoBlock && !index_.is_below(node))) break;
  }
  const std::int64_t num_unknown = restore.limit / kv_.block_size() - index;
  if (num_unknown <= 0) return false;
  const double saved = restore.compute_seconds * static_cast<double>(num_unknown * kv_.block_size());
  if (saved > 0.0 && look_up_seconds_ > kShareOfComputing * saved) {
    look_up_seconds_ *= kRefusedAnswer;
    return false;
  }
  std::vector<ChainKey> keys;
  keys.reserve(static_cast<std::size_t>(num_unknown));
  for (std::int64_t i = index; i < index + num_unknown; ++i)
    keys.push_back(kv_.key_at(*restore.table, restore.tokens, i));
  restore.look_up = shared_->look_up(std::move(keys));
  restore.first_looked_up = index;
  restore.table->is_looked_up = true;
  return true;
}

void LowerTier::receive_look_ups() {
  answers_.clear();
  shared_->take_look_ups(answers_);
  for (const KeyLookUp& answer : answers_) {
    if (!answer.record_bytes.empty()) {
      look_up_seconds_ = look_up_seconds_ == 0.0
                             ? answer.seconds
                             : look_up_seconds_ + kNewestAnswer * (answer.seconds - look_up_seconds_);
    }
    const auto asked = std::ranges::find(restores_, answer.id, &Restore::look_up);
    if (asked == restores_.end()) continue;
    asked->look_up = 0;
    asked->num_blocks = 0;  // it is counted again
    is_moving_ = true;
    try {
      enter_found(*asked, answer);
    } catch (const std::bad_alloc&) {  // what was entered so far is all
    }
  }
}

// The tokens are those of the prompt: whether the records hold them too is compared when they are read.
void LowerTier::enter_found(Restore& restore, const KeyLookUp& answer) {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  const auto num_answers = static_cast<std::int64_t>(answer.record_bytes.size());
  PrefixNode node = restore.table->root;
  for (std::int64_t index = 0; index < restore.first_looked_up + num_answers; ++index) {
    const PrefixNode parent = node;
    node = child(restore, parent, index);
    const std::int64_t place = index - restore.first_looked_up;
    const auto content = restore.tokens.subspan(static_cast<std::size_t>(index) * block_size, block_size);
    const auto found = place < 0 ? std::nullopt
                                 : shared_->payload_in(answer.record_bytes[static_cast<std::size_t>(place)],
                                                       index_.media().num_stretches(content));
    if (node == kNoNode && !found) return;
    if (!found) continue;
    index_.reserve_nodes();
    if (node == kNoNode) {
      node = index_.insert(parent, kv_.key_at(*restore.table, restore.tokens, index), content);
    }
    if (shared_->add_found(index_, node, *found)) continue;
    const bool is_kept = index_.block(node) != kNoBlock || index_.is_below(node);
    index_.forget_unused(node);
    if (!is_kept) return;
  }
}

// The store was asked and did not answer in time: it is asked less.
void LowerTier::give_up_look_up(const Restore& restore, Clock::time_point now) {
  if (restore.look_up == 0) return;
  const std::chrono::duration<double> waited = now - restore.began;
  look_up_seconds_ = std::max(look_up_seconds_, waited.count());
}

// Called while blocks are committed: it takes no memory. What finds no place is offered when it is evicted.
void LowerTier::after_entry(PrefixNode node) noexcept {
  if (shared_ == nullptr || to_publish_.size() >= kMostToPublish || !index_.is_full(node)) return;
  to_publish_.push_back(node);
  index_.add_user(node);
}

// In their order, as far as a step's share goes: parents before children.
void LowerTier::publish_new() {
  if (to_publish_.empty()) return;
  const bool is_up = shared_->is_up();
  std::size_t num_left = 0;
  bool is_over = false;  // of this step's share, or of the store's room
  for (std::size_t i = 0; i < to_publish_.size(); ++i) {
    const PrefixNode node = to_publish_[i];
    const bool awaits_more = index_.block(node) != kNoBlock && layout_.awaits(node);
    is_over = is_over || (is_up && !awaits_more && !publish(node));
    if (is_up && (is_over || awaits_more)) {
      to_publish_[num_left++] = node;
      continue;
    }
    index_.drop_user(node);
    index_.forget_unused(node);
  }
  to_publish_.resize(num_left);
  if (num_left > 0 && can_write(*shared_, layout_.most_bytes())) is_moving_ = true;
}

// False where there is no room for it now. What has left the pool by now is in the tiers that took it.
bool LowerTier::publish(PrefixNode node) {
  if (index_.block(node) == kNoBlock || outgoing_.contains(node)) return true;
  const std::size_t num_groups = layout_.worth(node);
  if (has_record(*shared_, node, num_groups) || (shared_->contains(node) && !shared_->is_readable(node))) return true;
  if (bytes_out_ < block_bytes() || !can_write(*shared_, layout_.payload_bytes(num_groups))) return false;
  try {
    move_out(node, num_groups, false, static_cast<std::uint8_t>(TierKind::kShared));
  } catch (const std::bad_alloc&) {  // it is not published
  }
  return true;
}

}  // namespace quire
