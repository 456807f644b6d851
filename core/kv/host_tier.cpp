#include "core/kv/host_tier.h"

namespace quire {

TierId HostTier::find(TierId parent, const std::string& salt, std::span<const TokenId> tokens) {
  const TierIndex::Node* const node = index_.find(parent, salt, tokens);
  return node != nullptr ? node->id : kNoTierId;
}

TierId HostTier::offer(TierId parent, const std::string& salt, std::span<const TokenId> tokens,
                       std::span<const std::byte> payload) {
  if (const TierIndex::Node* const known = index_.find(parent, salt, tokens)) return known->id;
  const auto num_bytes = static_cast<std::int64_t>(payload.size() + tokens.size_bytes());
  if (!index_.make_room(num_bytes, max_bytes_) || (parent != kNoTierId && !index_.contains(parent))) return kNoTierId;
  const TierId id = next_id_++;
  index_.set_bytes(index_.add(id, parent, salt, tokens), num_bytes);
  blocks_[id].assign(payload.begin(), payload.end());
  return id;
}

}  // namespace quire
