// Engine::Impl: slots that are saved, restored and erased. One chain moves at a time, beside the steps; further orders
// wait for it.
#include <algorithm>
#include <utility>

#include "core/engine/engine_impl.h"

namespace quire {

void Engine::Impl::note_slot(const Generation& generation) {
  if (slots_ == nullptr || generation.choice != 0 || generation.request->pooling != Pooling::kNone) return;
  try {
    slots_->note(generation.request->slot, generation.cache_salt, generation.tokens);
  } catch (const std::bad_alloc&) {  // the slot keeps what it had
  }
}

void Engine::Impl::receive_slot_orders() {
  if (slots_ == nullptr) return;
  std::ranges::move(slot_orders.take(), std::back_inserter(waiting_orders_));
  while (!waiting_orders_.empty() && !lower_tier_->is_moving_chain()) {
    SlotOrder order = std::move(waiting_orders_.front());
    waiting_orders_.pop_front();
    begin(std::move(order));
  }
}

void Engine::Impl::begin(SlotOrder order) {
  if (!slots_->contains(order.slot)) {
    order.done(tl::make_unexpected(Error{ErrorKind::kNotFound, "There is no such slot", "slot_not_found", "id_slot"}));
    return;
  }
  const SlotRecords::Record& record = slots_->at(order.slot);
  switch (order.what) {
    case SlotOrder::What::kErase: {
      KeptChain erased{.tokens = record.tokens};
      slots_->erase(order.slot);
      order.done(std::move(erased));
      return;
    }
    case SlotOrder::What::kSave: save(std::move(order), record); return;
    case SlotOrder::What::kRestore: restore(std::move(order)); return;
  }
}

void Engine::Impl::save(SlotOrder order, const SlotRecords::Record& record) {
  const ChainKey fingerprint = root_key(kv_.index().identity());
  const auto done = [fingerprint, report = std::move(order.done)](Result<KeptChain> saved) {
    if (saved) saved->fingerprint = fingerprint;
    report(std::move(saved));
  };
  lower_tier_->save_chain(record.salt, record.tokens, order.max_bytes, done);
}

void Engine::Impl::restore(SlotOrder order) {
  if (order.chain.fingerprint != root_key(kv_.index().identity())) {
    order.done(
        invalid("The slot was saved with another model, arithmetic or version of Quire", "filename", "slot_mismatch"));
    return;
  }
  const auto done = [this, slot = order.slot, report = std::move(order.done)](Result<KeptChain> restored) {
    kEngineThread.assume();
    if (restored) slots_->set(slot, restored->salt, restored->tokens);
    report(std::move(restored));
  };
  lower_tier_->restore_chain(std::move(order.chain), done);
}

void Engine::Impl::refuse_slot_orders(const Error& error) {
  if (slots_ == nullptr) return;
  slot_orders.close(error);
  for (const SlotOrder& order : std::exchange(waiting_orders_, {}))
    order.done(tl::make_unexpected(error));
  if (lower_tier_ != nullptr) lower_tier_->give_up_chain(error);
}

void Engine::order_slot(SlotOrder order) {
  if (!impl_->keeps_slots) {
    order.done(failure(ErrorKind::kInvalidRequest, "This model keeps no slots: its prefix cache is off",
                       "unsupported_operation"));
    return;
  }
  impl_->slot_orders.add(std::move(order));
  impl_->queue.wake();
}

}  // namespace quire
