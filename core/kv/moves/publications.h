// Publications: blocks on their way to the shared store as soon as they are full, in the order of their chains, and the
// prompts of which another daemon waits for all blocks. Engine thread only. Invariant: a node that waits here stays in
// the tree.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/shared_prefix.h"
#include "core/kv/moves/going_out.h"

namespace quire {

// The full blocks of a sequence's first tokens on their way to the shared store.
struct Publication {
  BlockTable held{};  // holds the root, no blocks
  std::vector<TokenId> tokens{};
  PrefixNode node{};  // last written block; the root if none is written
  std::int64_t num_written = 0;
  std::int64_t num_offered = 0;  // up to the last block that was offered again, because the store lacked it
  std::chrono::steady_clock::time_point give_up{};
};

class Publications {
 public:
  using Clock = std::chrono::steady_clock;

  // All must outlive it.
  Publications(KvCache& kv, const RecordLayout& layout, TierSources& tiers, GoingOut& out, StepMoves& step);
  ~Publications();
  Publications(const Publications&) = delete;
  Publications& operator=(const Publications&) = delete;

  // A node that is new in the pool. Called while blocks are committed: it takes no memory; a node that finds no place
  // is offered when it is evicted.
  void add(PrefixNode node) noexcept;
  // Moves the nodes out in their order, as far as a step's share goes: parents before children.
  void move_on();
  std::size_t num_waiting() const { return waiting_.size(); }

  // The table must be open; it may release its blocks afterwards.
  void begin(Publication& publication, const BlockTable& table, std::span<const TokenId> tokens, Clock::time_point now);
  // Whether it has ended: all of it is written, or the rest will not be written soon.
  bool has_ended(Publication& publication, Clock::time_point now);
  // Closes the publication and returns the prefix that is written.
  SharedPrefix end(Publication& publication);
  // Whether these are the first tokens of the sequence, in this arithmetic and layout.
  bool is_prefix(const SharedPrefix& prefix, BlockTable& table, std::span<const TokenId> tokens) const;

 private:
  static constexpr std::size_t kMostWaiting = 4096;

  bool publish(PrefixNode node);
  void move_to(Publication& publication, PrefixNode node);
  bool is_on_its_way(PrefixNode node) const;
  bool offer_again(Publication& publication, PrefixNode node);

  KvCache& kv_;
  PrefixIndex& index_;
  const RecordLayout layout_;
  TierSources& tiers_;
  SharedTier* const shared_;  // null: there is none, and nothing is published
  GoingOut& out_;
  StepMoves& step_;
  std::vector<PrefixNode> waiting_;  // users keep the nodes; memory is reserved for the most
};

}  // namespace quire
