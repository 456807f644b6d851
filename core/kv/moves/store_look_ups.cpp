#include "core/kv/moves/store_look_ups.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire {

namespace {

constexpr double kRefusedAnswer = 0.99;    // share that is left of the price each time that it was too high
constexpr double kShareOfComputing = 0.5;  // share of the expected saving that asking may cost

}  // namespace

// If groups keep content beside the blocks, asks for all blocks: the store may have content that the tiers here lack.
bool StoreLookUps::ask(Restore& restore) {
  if (shared_ == nullptr || restore.table->is_looked_up || !shared_->is_up()) return false;
  std::int64_t index = 0;
  for (PrefixNode node = restore.table->root; layout_.groups().empty(); ++index) {
    if ((index + 1) * kv_.block_size() > restore.limit) break;
    node = restore.child(kv_, node, index);
    if (node == kNoNode || (index_.block(node) == kNoBlock && !index_.is_below(node))) break;
  }
  const std::int64_t num_unknown = restore.limit / kv_.block_size() - index;
  if (num_unknown <= 0) return false;
  const double saved = restore.compute_seconds * static_cast<double>(num_unknown * kv_.block_size());
  if (saved > 0.0 && seconds_ > kShareOfComputing * saved) {
    seconds_ *= kRefusedAnswer;
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

bool StoreLookUps::receive(Restores& restores) {
  if (shared_ == nullptr) return false;
  answers_.clear();
  shared_->take_look_ups(answers_);
  bool has_answer = false;
  for (const KeyLookUp& answer : answers_) {
    if (!answer.record_bytes.empty()) follow(seconds_, answer.seconds);
    const auto asked = std::ranges::find(restores, answer.id, &Restore::look_up);
    if (asked == restores.end()) continue;
    asked->look_up = 0;
    asked->num_blocks = 0;  // the blocks are counted again
    has_answer = true;
    try {
      enter_found(*asked, answer);
    } catch (const std::bad_alloc&) {  // the blocks entered so far are all
    }
  }
  return has_answer;
}

// The tokens are those of the prompt: whether the records hold them too is compared when they are read.
void StoreLookUps::enter_found(Restore& restore, const KeyLookUp& answer) {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  const auto num_answers = static_cast<std::int64_t>(answer.record_bytes.size());
  PrefixNode node = restore.table->root;
  for (std::int64_t index = 0; index < restore.first_looked_up + num_answers; ++index) {
    const PrefixNode parent = node;
    node = restore.child(kv_, parent, index);
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

void StoreLookUps::give_up(const Restore& restore, Restore::Clock::time_point now) {
  if (restore.look_up == 0) return;
  const std::chrono::duration<double> waited = now - restore.began;
  seconds_ = std::max(seconds_, waited.count());
}

}  // namespace quire
