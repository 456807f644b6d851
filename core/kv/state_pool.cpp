#include "core/kv/state_pool.h"

#include "kernels/check.h"

namespace quire {

StatePool::StatePool(std::int64_t num_states) : links_(static_cast<std::size_t>(num_states)) {
  for (std::int64_t i = num_states; i-- > 0;)
    free(StateId{static_cast<std::int32_t>(i)});
}

StateId StatePool::allocate() {
  const StateId state = free_head_;
  if (state == kNoState) return state;
  free_head_ = links_[index(state)].next;
  links_[index(state)] = {.is_free = false};
  --num_free_;
  return state;
}

void StatePool::release(StateId live) {
  const Links& links = links_[index(live)];
  QUIRE_CHECK(!links.is_free && links.node == kNoNode, "a live state is released once");
  free(live);
}

void StatePool::keep(StateId live, PrefixNode node) {
  Links& links = links_[index(live)];
  QUIRE_CHECK(!links.is_free && links.node == kNoNode, "a snapshot is made of a live state");
  links.node = node;
  ++num_snapshots_;
  link(live);
}

void StatePool::touch(StateId snapshot) {
  unlink(snapshot);
  link(snapshot);
}

void StatePool::drop(StateId snapshot) {
  QUIRE_CHECK(links_[index(snapshot)].node != kNoNode, "only a snapshot is dropped");
  unlink(snapshot);
  --num_snapshots_;
  free(snapshot);
}

void StatePool::free(StateId state) {
  links_[index(state)] = {.next = free_head_};
  free_head_ = state;
  ++num_free_;
}

void StatePool::link(StateId state) {
  Links& links = links_[index(state)];
  links.previous = tail_;
  links.next = kNoState;
  (tail_ == kNoState ? head_ : links_[index(tail_)].next) = state;
  tail_ = state;
}

void StatePool::unlink(StateId state) {
  const Links& links = links_[index(state)];
  (links.previous == kNoState ? head_ : links_[index(links.previous)].next) = links.next;
  (links.next == kNoState ? tail_ : links_[index(links.next)].previous) = links.previous;
}

void StatePool::check_integrity() const {
  std::int64_t num_free = 0;
  for (StateId state = free_head_; state != kNoState; state = links_[index(state)].next) {
    QUIRE_CHECK(links_[index(state)].is_free, "the free list holds free states");
    QUIRE_CHECK(++num_free <= num_states(), "the free list ends");
  }
  std::int64_t num_snapshots = 0;
  StateId previous = kNoState;
  for (StateId state = head_; state != kNoState; state = links_[index(state)].next) {
    const Links& links = links_[index(state)];
    QUIRE_CHECK(links.node != kNoNode && links.previous == previous, "snapshots have nodes and are linked both ways");
    QUIRE_CHECK(++num_snapshots <= num_states(), "the list of snapshots ends");
    previous = state;
  }
  QUIRE_CHECK(previous == tail_ && num_free == num_free_ && num_snapshots == num_snapshots_,
              "free + live + snapshots = total");
}

}  // namespace quire
