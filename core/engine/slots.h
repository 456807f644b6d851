// Slots: saves, restores and erases conversations by slot number, and keeps the tokens of each slot. Engine thread
// only. Invariant: a single chain of blocks moves at a time, beside the steps; further orders wait for it. If no slots
// are kept, it does nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/engine/generation.h"
#include "core/engine/slot_orders.h"
#include "core/kv/kv_cache.h"
#include "core/kv/moves/lower_tier.h"

namespace quire {

class Slots {
 public:
  // num_slots: 0: no slots are kept. tier: moves the blocks; null without slots. The references must outlive it.
  Slots(std::int32_t num_slots, SlotOrders& orders, KvCache& kv, LowerTier* tier, const ChainKey& fingerprint,
        SharedError no_memory);

  bool are_kept() const { return records_.has_value(); }
  // Whether an order can begin now.
  bool has_order() const { return are_kept() && !tier_->is_moving_chain() && orders_.has_any(); }
  // Begins the orders that have arrived.
  void receive();
  // Notes an ended generation's conversation in a slot.
  void note(const Generation& generation);
  // Refuses all orders, present and future, and stops the one whose blocks move.
  void refuse(const Error& error);

 private:
  void begin(SlotOrder order);
  void save(const SlotOrder& order, const SlotRecords::Record& record);
  void restore(SlotOrder order);
  Result<KeptChain> noted(std::int32_t slot, Result<KeptChain> restored);

  SlotOrders& orders_;
  KvCache& kv_;
  LowerTier* const tier_;
  const ChainKey fingerprint_;
  const SharedError no_memory_;
  std::optional<SlotRecords> records_;  // absent: none are kept
};

}  // namespace quire
