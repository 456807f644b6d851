#include "core/engine/slots.h"

#include <new>
#include <utility>

#include "kernels/check.h"

namespace quire {

Slots::Slots(std::int32_t num_slots, SlotOrders& orders, KvCache& kv, LowerTier* tier, const ChainKey& fingerprint,
             SharedError no_memory)
    : orders_(orders), kv_(kv), tier_(tier), fingerprint_(fingerprint), no_memory_(std::move(no_memory)) {
  if (num_slots > 0) records_.emplace(num_slots, kv.mutable_index().media());
}

void Slots::note(const Generation& generation) {
  if (!are_kept() || generation.choice != 0 || generation.request->pooling != Pooling::kNone) return;
  try {
    records_->note(generation.request->slot, generation.cache_salt, generation.tokens);
  } catch (const std::bad_alloc&) {  // the slot keeps what it had
  }
}

// If there is no memory, the order alone fails.
void Slots::receive() {
  if (!are_kept()) return;
  while (!tier_->is_moving_chain()) {
    std::optional<SlotOrder> order = orders_.take_first();
    if (!order) return;
    const auto done = order->done;
    try {
      begin(*std::move(order));
    } catch (const std::bad_alloc&) {
      (*done)(tl::make_unexpected(*no_memory_));
    }
  }
}

void Slots::begin(SlotOrder order) {
  if (!records_->contains(order.slot)) {
    (*order.done)(
        tl::make_unexpected(Error{ErrorKind::kNotFound, "There is no such slot", "slot_not_found", "id_slot"}));
    return;
  }
  const SlotRecords::Record& record = records_->at(order.slot);
  switch (order.what) {
    case SlotOrder::What::kErase: {
      KeptChain erased{.content = kv_.index().media().exported(record.tokens)};
      records_->erase(order.slot);
      (*order.done)(std::move(erased));
      return;
    }
    case SlotOrder::What::kSave: save(order, record); return;
    case SlotOrder::What::kRestore: restore(std::move(order)); return;
  }
}

void Slots::save(const SlotOrder& order, const SlotRecords::Record& record) {
  tier_->save_chain(record.salt, record.tokens, order.max_bytes,
                    [fingerprint = fingerprint_, report = order.done](Result<KeptChain> saved) {
                      if (saved) saved->fingerprint = fingerprint;
                      (*report)(std::move(saved));
                    });
}

void Slots::restore(SlotOrder order) {
  if (order.chain.fingerprint != fingerprint_) {
    (*order.done)(
        invalid("The slot was saved with another model, arithmetic or version of Quire", "filename", "slot_mismatch"));
    return;
  }
  tier_->restore_chain(std::move(order.chain),
                       [this, slot = order.slot, report = order.done](Result<KeptChain> restored) {
                         (*report)(noted(slot, std::move(restored)));
                       });
}

// If there is no memory for the slot's tokens, the order fails; the restored blocks stay in the prefix cache.
Result<KeptChain> Slots::noted(std::int32_t slot, Result<KeptChain> restored) {
  if (!restored) return restored;
  try {
    MediaNames& media = kv_.mutable_index().media();
    auto tokens = media.imported(restored->content);
    QUIRE_CHECK(tokens.has_value(), "what was restored is content of this model");
    records_->set(slot, restored->salt, *tokens);
    media.drop_users(*tokens);
  } catch (const std::bad_alloc&) {
    return tl::make_unexpected(*no_memory_);
  }
  return restored;
}

void Slots::refuse(const Error& error) {
  if (!are_kept()) return;
  orders_.close(error);
  tier_->give_up_chain(error);
}

}  // namespace quire
