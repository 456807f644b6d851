// StepMoves: the moves between the pool and host memory of the next step, and the bytes that it may still move. Engine
// thread only; the parts of LowerTier fill it one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kv/kv_cache.h"
#include "core/kv/moves/block_move.h"

namespace quire {

struct StepMoves {
  explicit StepMoves(KvCache& cache) : kv(cache) {
    due_copies.reserve(static_cast<std::size_t>(cache.states().num_states()));
  }

  // Reserves memory for `count` more moves.
  void reserve(std::size_t count) {
    if (moves.capacity() < moves.size() + count) moves.reserve(2 * moves.size() + count);
  }
  // Call before content of groups beside the blocks is loaded, which may overwrite a state that the next step's copies
  // read first. Memory is reserved for one move per state.
  void add_due_copies() {
    due_copies.clear();
    kv.take_due_copies(due_copies);
    for (const BlockCopy& copy : due_copies) {
      moves.push_back({.kind = BlockMove::Kind::kCopyState,
                       .extras = {.state = StateId{copy.destination.value}},
                       .source = StateId{copy.source.value}});
    }
  }

  KvCache& kv;
  std::vector<BlockMove> moves{};
  std::vector<BlockCopy> due_copies{};
  std::int64_t bytes_in = 0;
  std::int64_t bytes_out = 0;
  bool has_more = false;  // the step after it has something to do without waiting for disk or store
};

}  // namespace quire
