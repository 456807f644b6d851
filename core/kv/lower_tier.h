// LowerTier: moves blocks between the KV cache and the disk tier below it. Engine thread only; never waits for the
// disk. What the pool evicts is offered to the tier; what a new request could use is fetched before the request is
// scheduled, if reading it is cheaper than computing it, by what both cost lately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kv/disk_tier.h"
#include "core/kv/kv_cache.h"
#include "kernels/backend.h"

namespace quire {

class LowerTier : public EvictionListener {
 public:
  // All must outlive it.
  LowerTier(KvCache& kv, KvStorage& storage, DiskTier& disk);
  ~LowerTier() override;

  // Begins to fetch what follows the cached part of the prompt, and returns the fetch's number; nothing where there is
  // nothing to gain. compute_seconds: of one token, 0 where that is not known yet.
  std::optional<std::uint64_t> begin_restore(const std::string& salt, std::span<const TokenId> prompt,
                                             double compute_seconds);
  // Puts what was fetched for that prompt into the cache, as if it had been computed and released. Returns the number
  // of blocks; nothing where the disk was not ready when it was asked: begin again.
  std::optional<std::int64_t> finish_restore(const std::string& salt, std::span<const TokenId> prompt,
                                             const DiskTier::Fetched& fetched);

  void drop_restore(std::uint64_t fetch) { pending_.erase(fetch); }  // nobody wants it any more

  // Offers everything that is cached. With `wait`, until the disk has taken it all.
  void persist_all(bool wait);

  void before_eviction(BlockId block) override;

 private:
  struct Pending {
    std::int64_t first_block;  // of the prompt, that was fetched
    std::vector<TierId> records;
  };

  bool persist(BlockId block, bool wait);
  bool is_persisted(BlockId block) const;
  TierId offer(BlockId block, TierId parent);

  KvCache& kv_;
  KvStorage& storage_;
  DiskTier& disk_;
  std::vector<TierId> ids_;                             // by block: its record, kNoTierId where it has none
  std::unordered_map<std::uint64_t, Pending> pending_;  // by the fetch's number
  std::vector<std::byte> buffer_;                       // one block
  double read_seconds_;                                 // of a block, an average
};

}  // namespace quire
