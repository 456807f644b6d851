// StatePool: the pool of recurrent states: those of running sequences, and snapshots of such states, which nodes of the
// prefix tree keep. Engine thread only. It knows the owner of each state, never its content. If no state is free, the
// caller gives up a snapshot first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/pool/pool.h"
#include "kernels/check.h"

namespace quire {

class StatePool {
 public:
  explicit StatePool(std::int64_t num_states) : states_(num_states), nodes_(static_cast<std::size_t>(num_states)) {}

  // Allocates a free state; kNoState if none is free: then give up a snapshot first.
  StateId allocate() { return states_.allocate_one(); }
  void release(StateId live) { states_.release(live, false); }
  // Turns a live state into the snapshot of `node`.
  void keep(StateId live, PrefixNode node) {
    states_.release(live, true);
    move(live, node);
  }
  void move(StateId snapshot, PrefixNode to) { nodes_[static_cast<std::size_t>(snapshot.value)] = to; }
  void touch(StateId snapshot) { states_.touch(snapshot); }
  void drop(StateId snapshot) { states_.drop(snapshot); }
  StateId oldest_snapshot() const { return states_.oldest_cached(); }
  StateId next_snapshot(StateId snapshot) const { return states_.next_cached(snapshot); }
  PrefixNode node_of(StateId snapshot) const { return nodes_[static_cast<std::size_t>(snapshot.value)]; }

  std::int64_t num_states() const { return states_.size(); }
  std::int64_t num_live() const { return states_.num_referenced(); }
  std::int64_t num_snapshots() const { return states_.num_cached(); }
  std::int64_t num_available() const { return states_.num_available(); }

  void check_integrity() const { states_.check_integrity(); }  // O(num_states)

 private:
  Pool<StateId> states_;
  std::vector<PrefixNode> nodes_;  // nodes of the snapshots
};

}  // namespace quire
