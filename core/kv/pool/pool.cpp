#include "core/kv/pool/pool.h"

#include "kernels/check.h"

namespace quire {

template <class Id>
Pool<Id>::Pool(std::int64_t size) : links_(static_cast<std::size_t>(size)) {
  most_.fill(size);
  for (std::int64_t i = size - 1; i >= 0; --i)
    push_free(Id{static_cast<std::int32_t>(i)});
}

template <class Id>
bool Pool<Id>::allocate(std::span<Id> out) {
  if (static_cast<std::int64_t>(out.size()) > num_free_) return false;
  for (Id& id : out) {
    id = free_head_;
    Links& links = links_[index(id)];
    free_head_ = links.next;
    links = {.num_references = 1, .state = State::kReferenced};
  }
  num_free_ -= static_cast<std::int64_t>(out.size());
  peak_referenced_ = std::max(peak_referenced_, num_referenced());
  return true;
}

template <class Id>
Id Pool<Id>::allocate_one() {
  Id id = kNone;
  allocate({&id, 1});
  return id;
}

template <class Id>
void Pool<Id>::retain(Id id) {
  Links& links = links_[index(id)];
  QUIRE_CHECK(links.state != State::kFree, "a free place has no content to share");
  if (links.state == State::kCached) {
    unlink_cached(id);
    links.state = State::kReferenced;
    peak_referenced_ = std::max(peak_referenced_, num_referenced());
  }
  links.is_forgettable = false;
  ++links.num_references;
}

template <class Id>
void Pool<Id>::release(Id id, bool keep) {
  Links& links = links_[index(id)];
  QUIRE_CHECK(links.num_references > 0, "a place is released once per reference");
  if (--links.num_references > 0) return;
  if (keep) {
    push_cached(id);
  } else {
    push_free(id);
  }
}

template <class Id>
void Pool<Id>::touch(Id id) {
  if (!is_cached(id)) return;
  unlink_cached(id);
  push_cached(id);
}

template <class Id>
void Pool<Id>::drop(Id id) {
  QUIRE_CHECK(is_cached(id), "only a cached place can be dropped");
  unlink_cached(id);
  push_free(id);
}

template <class Id>
void Pool<Id>::push_free(Id id) {
  links_[index(id)] = {.next = free_head_, .state = State::kFree};
  free_head_ = id;
  ++num_free_;
}

template <class Id>
void Pool<Id>::push_cached(Id id) {
  Links& links = links_[index(id)];
  List& list = list_of(id);
  links.state = State::kCached;
  links.previous = list.tail;
  links.next = kNone;
  (list.tail == kNone ? list.head : links_[index(list.tail)].next) = id;
  list.tail = id;
  ++list.length;
  if (list.length > most_[static_cast<std::size_t>(links.cache_class)]) {
    const Id oldest = list.head;
    unlink_cached(oldest);
    links_[index(oldest)].cache_class = CacheClass::kPlain;
    push_cached(oldest);
  }
}

template <class Id>
void Pool<Id>::unlink_cached(Id id) {
  const Links& links = links_[index(id)];
  List& list = list_of(id);
  (links.previous == kNone ? list.head : links_[index(links.previous)].next) = links.next;
  (links.next == kNone ? list.tail : links_[index(links.next)].previous) = links.previous;
  --list.length;
}

template <class Id>
std::int64_t Pool<Id>::check_free() const {
  std::int64_t num_free = 0;
  for (Id id = free_head_; id != kNone; id = links_[index(id)].next) {
    QUIRE_CHECK(links_[index(id)].state == State::kFree, "the free list holds free places");
    QUIRE_CHECK(++num_free <= size(), "the free list ends");
  }
  return num_free;
}

template <class Id>
void Pool<Id>::check_cached(const List& list) const {
  std::int64_t length = 0;
  Id previous = kNone;
  for (Id id = list.head; id != kNone; id = links_[index(id)].next) {
    const Links& links = links_[index(id)];
    QUIRE_CHECK(is_cached(id) && links.previous == previous, "a cached list is linked both ways");
    QUIRE_CHECK(&list == &lists_[static_cast<std::size_t>(links.cache_class)], "a place is in its class's list");
    QUIRE_CHECK(++length <= size(), "a cached list ends");
    previous = id;
  }
  QUIRE_CHECK(previous == list.tail && length == list.length, "a cached list ends at its tail");
}

template <class Id>
void Pool<Id>::check_integrity() const {
  const std::int64_t num_free = check_free();
  for (const List& list : lists_)
    check_cached(list);
  std::int64_t num_referenced_found = 0;
  for (const Links& links : links_) {
    QUIRE_CHECK((links.state == State::kReferenced) == (links.num_references > 0),
                "references make a place referenced");
    num_referenced_found += links.state == State::kReferenced ? 1 : 0;
  }
  QUIRE_CHECK(num_free == num_free_ && num_referenced_found == num_referenced(), "free + cached + referenced = total");
}

template class Pool<BlockId>;
template class Pool<PartId>;
template class Pool<StateId>;

}  // namespace quire
