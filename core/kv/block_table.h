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
  PrefixNode node{};  // of the last entered block; the salt's root where there is none
  PrefixNode root{};
  std::vector<ChainKey> keys;     // of the sequence's full blocks, as far as they were needed; computed once, kept when
                                  // the blocks are released
  std::int32_t pinned_begin = 0;  // of the blocks, those whose window parts the table pins
  std::int32_t pinned_end = 0;
  std::int64_t num_promised = 0;            // parts that are set aside for it beside those
  StateId state = kNoState;                 // of models with recurrent layers, while the table holds blocks
  StateId state_before_drafts = kNoState;   // a copy, while a step goes over drafts that may be wrong
  std::int64_t num_tokens_at_snapshot = 0;  // when one was last made of the state
  bool is_open = false;
  bool is_restoring = false;  // LowerTier brings back some of its prefix: it is not to be started before that has ended
  bool is_looked_up = false;  // the shared store was asked what it has of its prefix
  bool is_fetched = false;    // what it has was fetched at any price, or that was given up
  CacheClass cache_class = CacheClass::kPlain;  // of its blocks, once they are released
};

// Contents to be moved, in this order, before the step's forward pass: of blocks, of parts of blocks that layers with a
// window keep, or of recurrent states.
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
