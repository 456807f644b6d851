// StoreLookUps: asks the shared store which blocks of a prompt it has, once for each table, if the answer may save
// time. Engine thread only; answers come later. The price of asking is an average of the measured times.
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
  // Enters the store's answers into the tree, for the restores that asked; true if any restore got an answer.
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
  double seconds_ = 0.0;  // average time of an answer; 0: not yet known
};

}  // namespace quire
