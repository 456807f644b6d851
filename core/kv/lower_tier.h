// LowerTier: moves blocks between the KV cache and the tiers below it, host memory and disk. Engine thread only; never
// waits for the disk. What the pool evicts is offered to both (a preempted sequence is so swapped out, no more of it
// than room is needed for), unless it is cheaper made anew; what a request could use comes back before it is scheduled,
// if that is cheaper than computing it. Prices are averages of what was measured; one that nobody pays any more falls
// by a hundredth each time it is refused, so that it is tried again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kv/disk_tier.h"
#include "core/kv/host_tier.h"
#include "core/kv/kv_cache.h"
#include "kernels/backend.h"

namespace quire {

class LowerTier : public EvictionListener {
 public:
  // All must outlive it; a null tier is not there.
  LowerTier(KvCache& kv, KvStorage& storage, HostTier* host, DiskTier* disk);
  ~LowerTier() override;

  // Brings back from host memory, now, what follows the cached part of `tokens`, at most `limit` of them. Returns the
  // number of blocks. compute_seconds: of one token, 0 where that is not known or not to be asked.
  std::int64_t restore_from_host(const std::string& salt, std::span<const TokenId> tokens, std::int64_t limit,
                                 double compute_seconds);
  // Begins to fetch from disk what follows the cached part of the prompt, and returns the fetch's number; nothing where
  // there is nothing to gain. compute_seconds: of one token, 0 where that is not known yet.
  std::optional<std::uint64_t> begin_restore(const std::string& salt, std::span<const TokenId> prompt,
                                             double compute_seconds);
  // Puts what was fetched for that prompt into the cache, as if it had been computed and released. Returns the number
  // of blocks; nothing where the disk was not ready when it was asked: begin again.
  std::optional<std::int64_t> finish_restore(const std::string& salt, std::span<const TokenId> prompt,
                                             const DiskTier::Fetched& fetched);

  void drop_restore(std::uint64_t fetch) { pending_.erase(fetch); }  // nobody wants it any more

  // What moving a block to the host tier and back costs; 0: not yet known. Nothing: there is no such tier.
  std::optional<double> swap_seconds() const;
  // From now on it costs this, whatever is measured: for a simulation, whose clock is another.
  void set_swap_seconds(double of_block);

  // Offers to the disk what is cached, the next `num_blocks` of the pool; false once all of it has been looked at (and
  // the next call begins anew).
  bool persist_some(std::int64_t num_blocks);
  // Offers everything that is cached to the disk and waits until it has taken it.
  void persist_all();

  void before_eviction(BlockId block, WhenEvicted what) override;

 private:
  struct Pending {
    std::int64_t first_block;  // of the prompt, that was fetched
    std::vector<TierId> records;
  };

  using Ids = std::vector<TierId>;  // by block: its record in a tier, kNoTierId where it has none
  using Payload = std::function<std::span<const std::byte>(std::int64_t)>;  // of a block of the prompt

  // Puts blocks [first, end) of the prompt into the cache, as if they had been computed and released.
  std::int64_t install(const std::string& salt, std::span<const TokenId> tokens, std::int64_t first, std::int64_t end,
                       const Payload& payload, Ids& ids, std::span<const TierId> records);
  // With the blocks before it that are not there yet; returns how many the tier has now that were not known to be
  // there.
  template <class Tier>
  std::int64_t persist(Tier& tier, Ids& ids, BlockId block, const std::function<void()>& when_full);
  template <class Tier>
  TierId offer(Tier& tier, BlockId block, TierId parent);
  std::int64_t num_cached_blocks(const std::string& salt, std::span<const TokenId> tokens, std::int64_t limit);

  KvCache& kv_;
  KvStorage& storage_;
  HostTier* const host_;
  DiskTier* const disk_;
  Ids host_ids_;
  Ids disk_ids_;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by the fetch's number
  std::vector<std::byte> buffer_;                       // one block
  std::int64_t next_to_persist_ = 0;
  double read_seconds_ = 0.0;     // of a block from disk; 0: not yet known
  double copy_in_seconds_ = 0.0;  // of a block from host memory
  double copy_out_seconds_ = 0.0;
  bool measures_ = true;
};

}  // namespace quire
