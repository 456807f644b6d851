// StoreLookUps: asks the shared store which blocks of a prompt it has, once for each table, where that pays. Engine
// thread only; answers come later. The price of asking is an average of what was measured.
#pragma once

#include <cstdint>

#include "core/kv/moves/restore.h"
#include "core/kv/moves/tier_sources.h"

namespace quire {

class StoreLookUps {
 public:
  // All must outlive it.
  StoreLookUps(KvCache& kv, const RecordLayout& layout, SharedTier* shared)
      : kv_(kv), index_(kv.mutable_index()), layout_(layout), shared_(shared) {}

  // Whether the store was asked for the blocks of the prompt that are not known here.
  bool ask(Restore& restore);
  // Enters what the store has into the tree, for the restores that asked; true where there was an answer for one.
  bool receive(Restores& restores);
  // A restore ends without its answer: the store is asked less.
  void give_up(const Restore& restore, Restore::Clock::time_point now);

 private:
  void enter_found(Restore& restore, const KeyLookUp& answer);

  KvCache& kv_;
  PrefixIndex& index_;
  const RecordLayout layout_;
  SharedTier* const shared_;  // null: there is none
  KeyLookUps answers_;
  double seconds_ = 0.0;  // until the store has answered; 0: not yet known
};

}  // namespace quire
