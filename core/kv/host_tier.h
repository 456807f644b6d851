// HostTier: KV blocks that left the pool, in host memory up to a bound: what a preempted sequence swaps out and back
// in, and the prefix cache of a device with little memory. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kv/tier_index.h"

namespace quire {

class HostTier {
 public:
  explicit HostTier(std::int64_t max_bytes) : max_bytes_(max_bytes), index_([this](TierId id) { blocks_.erase(id); }) {}

  // As in DiskTier: the block with these tokens after `parent`; kNoTierId where there is none.
  TierId find(TierId parent, const std::string& salt, std::span<const TokenId> tokens);
  bool contains(TierId id) const { return index_.contains(id); }
  TierId offer(TierId parent, const std::string& salt, std::span<const TokenId> tokens,
               std::span<const std::byte> payload);
  const std::vector<std::byte>& payload(TierId id) const { return blocks_.at(id); }  // of a block that is here

  std::int64_t num_bytes() const { return index_.num_bytes(); }
  std::int64_t num_blocks() const { return index_.size(); }

 private:
  const std::int64_t max_bytes_;
  std::unordered_map<TierId, std::vector<std::byte>> blocks_;
  TierIndex index_;
  TierId next_id_ = 1;
};

}  // namespace quire
