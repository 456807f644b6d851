// BlockPool: the pool of KV blocks, with the bounds of its cache classes. Engine thread only.
#pragma once

#include <cstdint>

#include "core/kv/pool/pool.h"

namespace quire {

class BlockPool : public Pool<BlockId> {
 public:
  explicit BlockPool(std::int64_t num_blocks) : Pool(num_blocks) { limit(CacheClass::kReturning, share(kReturning)); }

  // The share of the pool that blocks of kRetained are kept in; beyond it the oldest of them go back to kPlain.
  void set_retained_share(double retained) { limit(CacheClass::kRetained, share(retained)); }
  std::int64_t num_blocks() const { return size(); }

 private:
  // Found on Mooncake's conversations: a fifth beats plain LRU at every size of pool, two fifths do not.
  static constexpr double kReturning = 0.2;

  std::int64_t share(double part) const { return static_cast<std::int64_t>(part * static_cast<double>(size())); }
};

}  // namespace quire
