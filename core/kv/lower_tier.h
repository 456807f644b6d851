// LowerTier: decides which blocks move between the KV cache and the tiers below it: host memory, disk, shared store; a
// step's executor moves them. Engine thread only; never waits for a file or socket. What the pool evicts is kept in all
// of them, unless computing it again costs less; what is new in the pool goes to the shared store at once; what a
// request could use comes back before it is started, where that costs less than computing it. Prices are averages of
// what was measured; one that is refused falls by a hundredth each time. With a block goes what groups keep
// beside it, where that is worth keeping. Invariants: a step moves max_bytes_per_step in
// and as many out, or one block; max_bytes_in_flight are being read or wait to be copied; a node is read once at a
// time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/shared_prefix.h"
#include "core/kv/block_move.h"
#include "core/kv/chain_transfer.h"
#include "core/kv/disk_tier.h"
#include "core/kv/groups/record_layout.h"
#include "core/kv/host_tier.h"
#include "core/kv/kv_cache.h"
#include "core/kv/shared_tier.h"

namespace quire {

// A block at least moves, whatever its size.
struct LowerTierOptions {
  std::int64_t max_bytes_per_step = std::int64_t{16} << 20;
  std::int64_t max_bytes_in_flight = std::int64_t{64} << 20;
};

class LowerTier : public KvCacheListener {
 public:
  using Clock = std::chrono::steady_clock;

  // All must outlive it; a null tier is not there.
  LowerTier(KvCache& kv, const KvBytes& bytes, HostTier* host, DiskTier* disk, const LowerTierOptions& options = {},
            SharedTier* shared = nullptr);
  ~LowerTier() override;

  // Asks for what follows the cached part of a waiting sequence's tokens, at most `limit` of them. The table is
  // restoring until as much of it has come as will; tokens must stay where they are so long. compute_seconds: of one
  // token; it is not waited for longer than computing takes. 0: not known or not to be asked; it is waited for as long
  // as enough comes. at_any_price: another process has just published it for this table; once for each. Returns whether
  // there is something to wait for.
  bool restore(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
               Clock::time_point now = Clock::now(), bool at_any_price = false);
  // Before a step is planned: takes what disk and store did, and brings back a step's share.
  void begin_step(Clock::time_point now = Clock::now());
  // Once the step is planned: all that moves with it, in order, into the empty `moves`. It must stay until
  // finish_moves().
  void take_moves(std::vector<BlockMove>& moves);
  // The step is done, and its moves took so long (0: not known): what was offloaded is handed to disk and store.
  void finish_moves(std::span<const BlockMove> moves, const MoveTimes& times);

  // Whether the next begin_step() has something to do without waiting for disk or store.
  bool is_moving() const { return is_moving_; }
  bool is_restoring() const { return !restores_.empty(); }
  // When a restore is given up whose blocks do not come.
  std::optional<Clock::time_point> next_deadline() const;
  std::uint64_t num_restored() const { return num_restored_; }  // blocks

  // Blocks that are new in the pool and on their way to the shared store, but not yet given to it.
  std::uint64_t num_to_publish() const { return to_publish_.size() + outgoing_.size(); }

  // The full blocks of a sequence's first tokens on their way to the shared store.
  struct Publication {
    BlockTable held{};  // without blocks: its root stays
    std::vector<TokenId> tokens{};
    PrefixNode node{};  // of the last block that is written; the root: none is
    std::int64_t num_written = 0;
    std::int64_t num_offered = 0;  // up to the last block that was offered again, because the store lacked it
    Clock::time_point give_up{};
  };
  bool can_publish() const { return shared_ != nullptr; }
  // For a table that is open: also of blocks that it is about to release.
  void begin_publication(Publication& publication, const BlockTable& table, std::span<const TokenId> tokens,
                         Clock::time_point now);
  // Whether it has ended: all of it is written, or what follows will not be for now.
  bool has_ended(Publication& publication, Clock::time_point now);
  // What is written of it; it is closed then.
  SharedPrefix end_publication(Publication& publication);
  // Whether these are the first tokens of the sequence, in this arithmetic and layout.
  bool is_prefix(const SharedPrefix& prefix, BlockTable& table, std::span<const TokenId> tokens) const;

  // What moving a block to the host tier and back costs; 0: not yet known. Nothing: there is no such tier.
  std::optional<double> swap_seconds() const;
  // From now on it costs this, whatever is measured: for a simulation, whose clock is another.
  void set_swap_seconds(double of_block);

  // Whether the disk takes another block now.
  bool has_disk_room() const { return disk_ != nullptr && can_write(*disk_, block_bytes()); }
  // Moves what is cached to the disk, of the pool's next `num_blocks` as much as there is room and a step's share;
  // false once all of it has been looked at (and the next call starts from the beginning).
  bool persist_some(std::int64_t num_blocks);
  // Only at the engine's end, which waits for the disk: for room, false where `until` comes first or it takes nothing;
  // then for all to be written, in the store too. What has not been at `until` is dropped.
  bool wait_for_room(Clock::time_point until);
  void end_persisting(Clock::time_point until);

  void before_eviction(PrefixNode node, WhenEvicted what) override;
  void before_loss(PrefixNode node) override { keep_below(node); }
  void after_entry(PrefixNode node) noexcept override;
  void before_close(BlockTable& table) override;
  bool give_way() override;

  std::int64_t num_bytes_in_flight() const;

  // One conversation's blocks to and from host memory, within a step's share; what the tiers have of it is brought back
  // before it is saved. As ChainTransfer says.
  void save_chain(std::string salt, std::vector<TokenId> tokens, std::int64_t max_bytes, ChainTransfer::Done done);
  void restore_chain(KeptChain chain, ChainTransfer::Done done);
  bool is_moving_chain() const { return chain_.is_moving(); }
  void give_up_chain(const Error& error) { chain_.give_up(error); }

 private:
  struct Restore {
    std::uint64_t id;
    BlockTable* table;
    std::span<const TokenId> tokens;
    std::int64_t limit;
    double compute_seconds;
    Clock::time_point give_up;
    Clock::time_point began{};
    std::int64_t num_blocks = 0;  // of the prompt; 0: not known before the disk is loaded, or the store has answered
    std::uint64_t look_up = 0;    // that the store was asked and has not answered; 0: none
    std::int64_t first_looked_up = 0;
    BlockTable held{};                   // what has come, so that it stays until the rest has
    std::int64_t num_copied = 0;         // of held, blocks that were not in the pool
    std::int64_t num_copied_before = 0;  // of them, before its patience began
    bool is_priced = true;               // it is known what computing takes
  };
  using Restores = std::list<Restore>;
  struct Source {
    RecordTier* tier;
    double read_seconds = 0.0;  // of a block; 0: not yet known
    bool is_refused = false;    // by the restore that is being looked at: computing costs less
  };
  std::uint8_t bit_of(const Source& source) const {
    return static_cast<std::uint8_t>(source.tier == shared_ ? TierKind::kShared : TierKind::kDisk);
  }

  std::int64_t num_blocks_to_restore(const Restore& restore);
  bool begin_restore(Restore restore);
  bool advance(Restore& restore);
  bool try_to_advance(Restore& restore);
  bool read_ahead(const Restore& restore);
  bool may_hold_more(const Restore& restore) const;
  std::size_t lacking(const Restore& restore, PrefixNode node) const {
    return layout_.lacking(node, restore.held.num_entered, restore.num_blocks);
  }
  bool is_on_host(PrefixNode node, std::size_t num_groups) const;
  // Where the node can be read, the cheapest first; null: nowhere.
  const Source* source_of(PrefixNode node, std::size_t num_groups, bool if_cheap = false) const;
  bool has_record(const RecordTier& tier, PrefixNode node, std::size_t num_groups) const;
  BlockPayload payload_of(PrefixNode node, std::size_t num_groups) const;
  bool hold(Restore& restore, PrefixNode node, BlockMove* load = nullptr);
  bool copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload);
  // So that `count` more moves take no memory.
  void reserve_moves(std::size_t count);
  void move_due_copies();
  void move_out(PrefixNode node, std::size_t num_groups, bool to_host, std::uint8_t records);
  std::int64_t block_bytes() const { return layout_.block_bytes(); }
  std::int64_t token_bytes(PrefixNode node) const {
    return static_cast<std::int64_t>(index_.tokens(node).size_bytes());
  }
  // Of what took so long for so many bytes.
  double of_block(double seconds, std::int64_t num_bytes) const {
    return seconds * static_cast<double>(block_bytes()) / static_cast<double>(num_bytes);
  }
  bool can_write(RecordTier& tier, std::int64_t num_bytes) const { return tier.can_take(outgoing_bytes_ + num_bytes); }
  // Whether a payload holds what so many groups keep.
  bool holds(std::int64_t payload_bytes, std::size_t num_groups) const {
    const auto held = layout_.groups_in(payload_bytes);
    return held && *held >= num_groups;
  }
  PrefixNode child(const Restore& restore, PrefixNode node, std::int64_t index) const;
  Restores::iterator finish(Restores::iterator restore);
  bool brings_enough(Restore& restore, Clock::time_point now);
  void refuse_readers(const Restore& restore);
  void receive();
  void receive(Source& source);
  bool note_arrived(Source& source, RecordTier::Arrived& arrived, std::uint64_t restore);
  void drop_unwanted();
  void keep_below(PrefixNode node, std::span<const PrefixNode> kept = {});
  bool is_for_host(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const;
  void clean_oldest();
  std::uint8_t records_to_write(PrefixNode node, std::size_t num_groups, std::span<const PrefixNode> kept) const;

  // lower_tier_shared.cpp
  bool look_up(Restore& restore);
  void receive_look_ups();
  void enter_found(Restore& restore, const KeyLookUp& answer);
  void publish_new();
  bool publish(PrefixNode node);
  void give_up_look_up(const Restore& restore, Clock::time_point now);

  // lower_tier_publication.cpp
  void move_on(Publication& publication, PrefixNode node);
  bool is_on_its_way(PrefixNode node) const;
  bool offer_again(Publication& publication, PrefixNode node);

  KvCache& kv_;
  PrefixIndex& index_;
  HostTier* const host_;
  DiskTier* const disk_;
  SharedTier* const shared_;
  std::vector<Source> sources_;  // disk, then store, as far as they are there
  const LowerTierOptions options_;
  const RecordLayout layout_;
  ChainTransfer chain_;
  Restores restores_;
  struct Reading {
    std::uint64_t restore;  // which asked for it
    std::int64_t num_bytes;
    const RecordTier* tier;
  };
  std::unordered_map<PrefixNode, Reading> reading_;
  struct Waiting {
    BlockPayload payload;
    std::uint64_t restore;
  };
  std::unordered_map<PrefixNode, Waiting> arrived_;  // read, not yet copied
  std::vector<RecordTier::Arrived> received_;
  std::vector<BlockCopy> due_copies_;
  std::vector<BlockMove> moves_;             // of the next step
  std::unordered_set<PrefixNode> outgoing_;  // to disk or store, with a step that is not done
  std::int64_t outgoing_bytes_ = 0;
  std::int64_t bytes_in_ = 0;  // left to be moved in this step
  std::int64_t bytes_out_ = 0;
  bool is_moving_ = false;
  std::uint64_t next_restore_ = 1;
  std::uint64_t num_restored_ = 0;
  std::int64_t next_to_persist_ = 0;
  static constexpr std::size_t kMostToPublish = 4096;
  std::vector<PrefixNode> to_publish_;  // used by it; room for the most
  KeyLookUps answers_;
  double look_up_seconds_ = 0.0;  // until the store has answered; 0: not yet known
  double load_seconds_ = 0.0;     // of a block from host memory
  double offload_seconds_ = 0.0;
  bool measures_ = true;
};

}  // namespace quire
