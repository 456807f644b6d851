// LowerTier: the tiers below the KV cache: host memory, disk, shared store. It listens to the pool and leaves the moves
// to its parts: GoingOut, ComingBack, Publications and ChainTransfer; a step's executor moves the bytes. Engine thread
// only; it waits for files or sockets only at the engine's end. Invariant: a step moves at most max_bytes_per_step in
// and as many out, or one block.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/kv/moves/chain_transfer.h"
#include "core/kv/moves/coming_back.h"
#include "core/kv/moves/going_out.h"
#include "core/kv/moves/publications.h"
#include "core/kv/moves/tier_sources.h"

namespace quire {

// A block at least moves, whatever its size.
struct LowerTierOptions {
  std::int64_t max_bytes_per_step = std::int64_t{16} << 20;
  std::int64_t max_bytes_in_flight = std::int64_t{64} << 20;
};

class LowerTier : public KvCacheListener {
 public:
  using Clock = std::chrono::steady_clock;
  using Publication = quire::Publication;

  // All must outlive it; a null tier is not there.
  LowerTier(KvCache& kv, const KvBytes& bytes, HostTier* host, DiskTier* disk, const LowerTierOptions& options = {},
            SharedTier* shared = nullptr);
  ~LowerTier() override;

  // Starts to load the tokens that follow the cached part of a waiting sequence, at most `limit` of them, and returns
  // whether there is anything to wait for. The table is restoring until everything available has been loaded; `tokens`
  // must stay valid until then. compute_seconds: cost of one token; a restore that takes longer than computing is given
  // up. 0: unknown or irrelevant; the restore waits as long as enough arrives. at_any_price: another process has just
  // published the prefix for this table; use it once per table.
  bool restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
               Clock::time_point now = Clock::now(), bool at_any_price = false) {
    return back_.begin(table, tokens, limit, compute_seconds, now, at_any_price);
  }
  // Call before a step is planned: takes finished reads and writes of disk and store, and loads a step's share.
  void begin_step(Clock::time_point now = Clock::now());
  // Once the step is planned: all that moves with it, in order, into the empty `moves`. It must stay until
  // finish_moves().
  void take_moves(std::vector<BlockMove>& moves);
  // Call when the step is done, with the time of its moves (0: unknown): passes offloaded blocks to disk and store.
  void finish_moves(std::span<const BlockMove> moves, const MoveTimes& times);

  // Whether the next begin_step() has something to do without waiting for disk or store.
  bool is_moving() const { return step_.has_more; }
  bool is_restoring() const { return !back_.is_empty(); }
  // When a restore is given up whose blocks do not come.
  std::optional<Clock::time_point> next_deadline() const { return back_.next_deadline(); }
  std::uint64_t num_restored() const { return back_.num_restored(); }  // blocks
  std::int64_t num_bytes_in_flight() const { return back_.num_bytes_in_flight(); }

  // Blocks that are new in the pool and on their way to the shared store, but not yet given to it.
  std::uint64_t num_to_publish() const { return publications_.num_waiting() + out_.size(); }
  // See Publications.
  bool can_publish() const { return tiers_.shared() != nullptr; }
  void begin_publication(Publication& publication, const BlockTable& table, std::span<const TokenId> tokens,
                         Clock::time_point now) {
    publications_.begin(publication, table, tokens, now);
  }
  bool has_ended(Publication& publication, Clock::time_point now) { return publications_.has_ended(publication, now); }
  SharedPrefix end_publication(Publication& publication) { return publications_.end(publication); }
  bool is_prefix(const SharedPrefix& prefix, BlockTable& table, std::span<const TokenId> tokens) const {
    return publications_.is_prefix(prefix, table, tokens);
  }

  // The time of moving a block to the host tier and back; see TierSources.
  std::optional<double> swap_seconds() const { return tiers_.swap_seconds(); }
  void set_swap_seconds(double block_seconds) { tiers_.set_swap_seconds(block_seconds); }

  // Whether the disk takes another block now.
  bool has_disk_room() const { return out_.has_disk_room(); }
  // Copies cached blocks among the pool's next `num_blocks` to the disk, within its room and a step's share; false
  // after the last block (and the next call starts again from the first).
  bool persist_some(std::int64_t num_blocks);
  // For the engine's end, which may wait for the disk: waits for room; false if `until` comes first or it takes
  // nothing. Then waits until all is written, in the store too; writes still queued at `until` are dropped.
  bool wait_for_room(Clock::time_point until);
  void end_persisting(Clock::time_point until);

  void before_eviction(PrefixNode node, WhenEvicted what) override;
  void before_loss(PrefixNode node) override { out_.keep(node); }
  void after_entry(PrefixNode node) noexcept override { publications_.add(node); }
  void before_close(BlockTable& table) override { back_.close(table); }
  bool give_way() override;
  bool is_moving_next(BlockId block) const override;

  // Moves one conversation's blocks to or from host memory within a step's share (see ChainTransfer). Before a save,
  // blocks that only the tiers hold are loaded.
  void save_chain(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes, ChainTransfer::Done done);
  void restore_chain(KeptChain chain, ChainTransfer::Done done);
  bool is_moving_chain() const { return chain_.is_moving(); }
  void give_up_chain(const Error& error) { chain_.give_up(error); }

 private:
  KvCache& kv_;
  const RecordLayout layout_;
  const std::int64_t max_bytes_per_step_;
  TierSources tiers_;
  StepMoves step_;
  GoingOut out_;
  ComingBack back_;
  Publications publications_;
  ChainTransfer chain_;
};

}  // namespace quire
