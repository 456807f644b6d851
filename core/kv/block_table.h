// BlockTable: the blocks of one sequence in order, and where in the prefix tree it stands. Engine thread only.
// Invariant: the first num_entered blocks are full and in the tree, on the path that ends at `node`; KvCache alone
// changes it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/index/prefix_index.h"
#include "core/kv/pool/window_pool.h"

namespace quire {

struct BlockTable {
  std::vector<BlockId> blocks;
  std::int32_t num_entered = 0;
  PrefixNode node{};  // last entered block; the salt's root if none is entered
  PrefixNode root{};
  std::vector<ChainKey> keys;     // full blocks' keys; computed once, kept after blocks are released
  std::int32_t pinned_begin = 0;  // pinned_begin to pinned_end: blocks whose window parts are pinned
  std::int32_t pinned_end = 0;
  std::int64_t num_promised = 0;            // window parts reserved beyond the pinned ones
  StateId state = kNoState;                 // recurrent models only, while the table holds blocks
  StateId state_before_drafts = kNoState;   // a copy, kept while unverified drafts are computed
  std::int64_t num_tokens_at_snapshot = 0;  // length at the last snapshot
  bool is_open = false;
  bool is_restoring = false;                    // LowerTier is loading its prefix: do not start it yet
  bool is_looked_up = false;                    // the shared store was asked for this prefix
  bool is_fetched = false;                      // the restore "at any price" ran, or was given up
  CacheClass cache_class = CacheClass::kPlain;  // class of its blocks after their release
};

// Copies before the step's forward pass, in this order: blocks, window parts of blocks, or recurrent states.
struct BlockCopy {
  enum class Of : std::uint8_t { kBlock, kPart, kState };
  BlockCopy(BlockId from, BlockId to) : source(from), destination(to) {}
  BlockCopy(PartId from, PartId to) : source{from.value}, destination{to.value}, of(Of::kPart) {}
  BlockCopy(StateId from, StateId to) : source{from.value}, destination{to.value}, of(Of::kState) {}

  BlockId source;
  BlockId destination;
  Of of = Of::kBlock;
};

}  // namespace quire
