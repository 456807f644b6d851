// ComingBack: loads prefixes of waiting sequences into the pool, if that costs less than computing them. Engine thread
// only; it never waits for a file or socket. Invariants: a table is restoring until everything available of its prefix
// has been loaded; a node is read once at a time; at most max_bytes_in_flight are being read or wait to be copied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/kv/moves/restore.h"
#include "core/kv/moves/step_moves.h"
#include "core/kv/moves/store_look_ups.h"
#include "core/kv/moves/tier_sources.h"

namespace quire {

class ComingBack {
 public:
  using Clock = Restore::Clock;

  // All must outlive it.
  ComingBack(KvCache& kv, const RecordLayout& layout, TierSources& tiers, StepMoves& step,
             std::int64_t max_bytes_in_flight);

  // Same contract as LowerTier::restore().
  bool begin(BlockTable& table, std::span<const TokenId> tokens, std::int64_t limit, double compute_seconds,
             Clock::time_point now, bool at_any_price);
  // Takes finished reads of disk and store, and the store's answers.
  void receive();
  // Brings back a step's share for all restores, and ends those that have come or are late.
  void advance_all(Clock::time_point now);
  void close(const BlockTable& table);  // the table must be restoring
  // Ends the restores that hold blocks; whether there were any.
  bool give_way();
  void end_all();

  bool is_empty() const { return restores_.empty(); }
  std::optional<Clock::time_point> next_deadline() const;
  std::uint64_t num_restored() const { return num_restored_; }  // blocks
  std::int64_t num_bytes_in_flight() const;

 private:
  bool begin(Restore restore);
  std::int64_t num_blocks_to_restore(const Restore& restore);
  bool try_to_advance(Restore& restore);
  bool advance(Restore& restore);
  bool read_ahead(const Restore& restore);
  bool may_hold_more(const Restore& restore) const;
  std::size_t lacking(const Restore& restore, PrefixNode node) const {
    return layout_.lacking(node, restore.held.num_entered, restore.num_blocks);
  }
  BlockPayload payload_of(PrefixNode node, std::size_t num_groups) const;
  bool hold(Restore& restore, PrefixNode node, BlockMove* load = nullptr);
  bool copy_in(Restore& restore, PrefixNode node, const BlockPayload& payload);
  Restores::iterator finish(Restores::iterator restore);
  bool brings_enough(Restore& restore, Clock::time_point now) const;
  void refuse_readers(const Restore& restore);
  bool note_arrived(TierSources::Source& source, RecordTier::Arrived& arrived, std::uint64_t restore);
  void drop_unwanted();

  KvCache& kv_;
  PrefixIndex& index_;
  const RecordLayout layout_;
  TierSources& tiers_;
  StepMoves& step_;
  const std::int64_t max_bytes_in_flight_;
  StoreLookUps look_ups_;
  Restores restores_;
  struct Reading {
    std::uint64_t restore;  // the restore that requested it
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
  std::uint64_t next_restore_ = 1;
  std::uint64_t num_restored_ = 0;
};

}  // namespace quire
