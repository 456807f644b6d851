// LowerTier: prompts that are on their way to the shared store, for a daemon that decodes them.
#include <algorithm>
#include <new>
#include <utility>

#include "core/kv/lower_tier.h"

namespace quire {

namespace {

// Without another block written: a store that fails is noticed long before.
constexpr std::chrono::seconds kPublishPatience{5};

}  // namespace

void LowerTier::begin_publication(Publication& publication, const BlockTable& table, std::span<const TokenId> tokens,
                                  Clock::time_point now) {
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  publication.tokens.assign(tokens.begin(), tokens.end());
  index_.media().add_users(publication.tokens);
  publication.held.keys.reserve(tokens.size() / block_size);
  kv_.open(publication.held, table);
  publication.node = publication.held.root;
  publication.give_up = now + kPublishPatience;
}

bool LowerTier::has_ended(Publication& publication, Clock::time_point now) {
  if (!shared_->is_up()) return true;
  const auto block_size = static_cast<std::size_t>(kv_.block_size());
  const std::span<const TokenId> tokens = publication.tokens;
  const auto num_blocks = static_cast<std::int64_t>(tokens.size() / block_size);
  while (publication.num_written < num_blocks) {
    const auto begin = static_cast<std::size_t>(publication.num_written) * block_size;
    const PrefixNode node = index_.find(publication.node, kv_.key_at(publication.held, tokens, publication.num_written),
                                        tokens.subspan(begin, block_size));
    if (node == kNoNode) return true;
    if (!shared_->is_readable(node)) {
      const bool may_come = is_on_its_way(node) || offer_again(publication, node);
      return !may_come || now >= publication.give_up;
    }
    move_on(publication, node);
    ++publication.num_written;
    publication.give_up = now + kPublishPatience;
  }
  return true;
}

// The node that it stands at stays, whatever becomes of its block.
void LowerTier::move_on(Publication& publication, PrefixNode node) {
  if (node != publication.held.root) index_.add_user(node);
  const PrefixNode before = std::exchange(publication.node, node);
  if (before == publication.held.root) return;
  index_.drop_user(before);
  index_.forget_unused(before);
}

bool LowerTier::is_on_its_way(PrefixNode node) const {
  return shared_->contains(node) || outgoing_.contains(node) ||
         std::ranges::find(to_publish_, node) != to_publish_.end();
}

// A block that was computed while the store was away, or that it took and lost. Once for each.
bool LowerTier::offer_again(Publication& publication, PrefixNode node) {
  if (index_.block(node) == kNoBlock || publication.num_offered > publication.num_written) return false;
  if (to_publish_.size() >= kMostToPublish) return false;
  publication.num_offered = publication.num_written + 1;
  to_publish_.push_back(node);
  index_.add_user(node);
  is_moving_ = true;
  return true;
}

SharedPrefix LowerTier::end_publication(Publication& publication) {
  const ChainKey last_block = index_.key_of(publication.node);
  move_on(publication, publication.held.root);
  kv_.close(publication.held);
  index_.media().drop_users(std::exchange(publication.tokens, {}));
  SharedPrefix prefix{.num_tokens = publication.num_written * kv_.block_size(),
                      .num_blocks = static_cast<std::int32_t>(publication.num_written),
                      .fingerprint = hex_digits(shared_->fingerprint())};
  if (publication.num_written > 0) prefix.last_block = hex_digits(last_block);
  return prefix;
}

bool LowerTier::is_prefix(const SharedPrefix& prefix, BlockTable& table, std::span<const TokenId> tokens) const {
  const std::int64_t num_blocks = prefix.num_tokens / kv_.block_size();
  if (shared_ == nullptr || num_blocks <= 0 || prefix.num_tokens > std::ssize(tokens)) return false;
  return prefix.fingerprint == hex_digits(shared_->fingerprint()) &&
         prefix.last_block == hex_digits(kv_.key_at(table, tokens, num_blocks - 1));
}

}  // namespace quire
