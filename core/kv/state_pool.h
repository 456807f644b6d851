// StatePool: metadata of every recurrent state: those of running sequences, and snapshots of such states that nodes of
// the prefix tree keep. Engine thread only. It knows the owner of each state, never its content. Invariants: free +
// live + snapshots = total; a state that is asked for takes the place of the snapshot that was used least recently
// where none is free; each operation is O(1) and allocates no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/prefix_index.h"

namespace quire {

class StatePool {
 public:
  explicit StatePool(std::int64_t num_states);

  // A free state, live from now on; kNoState where there is none: the oldest snapshot is to be given up first.
  StateId allocate();
  void release(StateId live);
  // A live state becomes what `node` keeps.
  void keep(StateId live, PrefixNode node);
  void move(StateId snapshot, PrefixNode to) { links_[index(snapshot)].node = to; }
  void touch(StateId snapshot);
  void drop(StateId snapshot);
  StateId oldest_snapshot() const { return head_; }
  StateId next_snapshot(StateId snapshot) const { return links_[index(snapshot)].next; }
  PrefixNode node_of(StateId snapshot) const { return links_[index(snapshot)].node; }

  std::int64_t num_states() const { return static_cast<std::int64_t>(links_.size()); }
  std::int64_t num_live() const { return num_states() - num_free_ - num_snapshots_; }
  std::int64_t num_snapshots() const { return num_snapshots_; }
  std::int64_t num_available() const { return num_free_ + num_snapshots_; }

  void check_integrity() const;  // O(num_states)

 private:
  struct Links {
    StateId previous = kNoState;  // of the snapshots; the free ones are linked by `next` alone
    StateId next = kNoState;
    PrefixNode node = kNoNode;  // of a snapshot
    bool is_free = true;
  };

  static std::size_t index(StateId state) { return static_cast<std::size_t>(state.value); }
  void link(StateId state);
  void unlink(StateId state);
  void free(StateId state);

  std::vector<Links> links_;
  StateId free_head_ = kNoState;
  StateId head_ = kNoState;  // the least recently used snapshot
  StateId tail_ = kNoState;
  std::int64_t num_free_ = 0;
  std::int64_t num_snapshots_ = 0;
};

}  // namespace quire
