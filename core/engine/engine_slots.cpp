// Engine::Impl: saving, restoring and erasing slots. A single chain moves at a time, beside the steps; further orders
// wait for it.
#include <new>
#include <optional>
#include <utility>

#include "core/engine/engine_impl.h"
#include "kernels/check.h"

namespace quire {

void Engine::Impl::note_slot(const Generation& generation) {
  if (slots_ == nullptr || generation.choice != 0 || generation.request->pooling != Pooling::kNone) return;
  try {
    slots_->note(generation.request->slot, generation.cache_salt, generation.tokens);
  } catch (const std::bad_alloc&) {  // the slot keeps what it had
  }
}

// Out of memory fails only this order.
void Engine::Impl::receive_slot_orders() {
  if (slots_ == nullptr) return;
  while (!lower_tier_->is_moving_chain()) {
    std::optional<SlotOrder> order = slot_orders.take_first();
    if (!order) return;
    const auto done = order->done;
    try {
      begin(*std::move(order));
    } catch (const std::bad_alloc&) {
      (*done)(tl::make_unexpected(*no_memory_));
    }
  }
}

void Engine::Impl::begin(SlotOrder order) {
  if (!slots_->contains(order.slot)) {
    (*order.done)(
        tl::make_unexpected(Error{ErrorKind::kNotFound, "There is no such slot", "slot_not_found", "id_slot"}));
    return;
  }
  const SlotRecords::Record& record = slots_->at(order.slot);
  switch (order.what) {
    case SlotOrder::What::kErase: {
      KeptChain erased{.content = kv_.index().media().exported(record.tokens)};
      slots_->erase(order.slot);
      (*order.done)(std::move(erased));
      return;
    }
    case SlotOrder::What::kSave: save(order, record); return;
    case SlotOrder::What::kRestore: restore(std::move(order)); return;
  }
}

void Engine::Impl::save(const SlotOrder& order, const SlotRecords::Record& record) {
  lower_tier_->save_chain(record.salt, record.tokens, order.max_bytes,
                          [fingerprint = fingerprint_, report = order.done](Result<KeptChain> saved) {
                            if (saved) saved->fingerprint = fingerprint;
                            (*report)(std::move(saved));
                          });
}

void Engine::Impl::restore(SlotOrder order) {
  if (order.chain.fingerprint != fingerprint_) {
    (*order.done)(
        invalid("The slot was saved with another model, arithmetic or version of Quire", "filename", "slot_mismatch"));
    return;
  }
  lower_tier_->restore_chain(std::move(order.chain),
                             [this, slot = order.slot, report = order.done](Result<KeptChain> restored) {
                               kEngineThread.assume();
                               (*report)(noted(slot, std::move(restored)));
                             });
}

// If there is no memory for the slot's tokens, the order fails; the restored blocks stay in the prefix cache.
Result<KeptChain> Engine::Impl::noted(std::int32_t slot, Result<KeptChain> restored) {
  if (!restored) return restored;
  try {
    MediaNames& media = kv_.mutable_index().media();
    auto tokens = media.imported(restored->content);
    QUIRE_CHECK(tokens.has_value(), "what was restored is content of this model");
    slots_->set(slot, restored->salt, *tokens);
    media.drop_users(*tokens);
  } catch (const std::bad_alloc&) {
    return tl::make_unexpected(*no_memory_);
  }
  return restored;
}

void Engine::Impl::refuse_slot_orders(const Error& error) {
  if (slots_ == nullptr) return;
  slot_orders.close(error);
  if (lower_tier_ != nullptr) lower_tier_->give_up_chain(error);
}

void Engine::order_slot(SlotOrder order) {
  if (!impl_->keeps_slots) {
    (*order.done)(failure(ErrorKind::kInvalidRequest, "This model keeps no slots: its prefix cache is off",
                          "unsupported_operation"));
    return;
  }
  impl_->slot_orders.add(std::move(order));
  impl_->queue.wake();
}

}  // namespace quire
