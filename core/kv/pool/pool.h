// Pool: metadata of equal places, such as blocks: their references, and the order in which they are handed out. Engine
// thread only. A place is free (empty), cached (unreferenced, its content is kept) or referenced. Cached places leave
// by class, and within a class the least recently used first; a class may be bounded to a part of the pool. Everything
// cached can be dropped. Invariants: free + cached + referenced = total; an allocation takes all or nothing; each
// operation is O(1) per place and allocates no memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_ids.h"

namespace quire {

// Classes in the order of eviction. A block has the latest class among those of its users.
enum class CacheClass : std::uint8_t {
  kBackground,  // used by batches alone
  kPlain,
  kReturning,  // used by conversations that came back
  kRetained,   // a client asked for it to be kept
};

template <class Id>
class Pool {
 public:
  static constexpr Id kNone{-1};

  explicit Pool(std::int64_t size);

  // Takes out.size() free places, last freed first, each with one reference; false, and nothing changed, where fewer
  // are free.
  bool allocate(std::span<Id> out);
  // The same for one; kNone where none is free.
  Id allocate_one();
  // Adds a reference to a cached or referenced place.
  void retain(Id id);
  // Drops a reference. The last one frees the place, or keeps it as the most recently used cached one.
  void release(Id id, bool keep);
  // Lets a referenced place leave no earlier than others of that class. A caller that raises a block also raises those
  // before it in its chain.
  void raise(Id id, CacheClass to) {
    CacheClass& own = links_[index(id)].cache_class;
    own = std::max(own, to);
  }
  // Bounds the number of cached places of a class: beyond it, the oldest go back to kPlain.
  void limit(CacheClass which, std::int64_t most) { most_[static_cast<std::size_t>(which)] = most; }
  // Marks a place, until it is shared or released again, as cheaper to recompute than to keep in a lower tier.
  void set_forgettable(Id id, bool forgettable) { links_[index(id)].is_forgettable = forgettable; }
  bool is_forgettable(Id id) const { return links_[index(id)].is_forgettable; }
  // Marks a cached place as the most recently used.
  void touch(Id id);
  // The cached place to give up next, kNone where there is none; drop() frees a cached place.
  Id oldest_cached() const { return first_of(0); }
  void drop(Id id);
  // The cached place that leaves after this cached one; kNone after the last.
  Id next_cached(Id id) const {
    const Links& links = links_[index(id)];
    return links.next != kNone ? links.next : first_of(static_cast<std::size_t>(links.cache_class) + 1);
  }
  CacheClass cache_class(Id id) const { return links_[index(id)].cache_class; }
  std::int64_t num_cached(CacheClass which) const { return lists_[static_cast<std::size_t>(which)].length; }

  std::int32_t num_references(Id id) const { return links_[index(id)].num_references; }
  bool is_cached(Id id) const { return links_[index(id)].state == State::kCached; }
  bool is_free(Id id) const { return links_[index(id)].state == State::kFree; }

  std::int64_t size() const { return static_cast<std::int64_t>(links_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_cached() const {
    std::int64_t count = 0;
    for (const List& list : lists_)
      count += list.length;
    return count;
  }
  std::int64_t num_referenced() const { return size() - num_free_ - num_cached(); }
  std::int64_t num_available() const { return num_free_ + num_cached(); }  // free, or freed by evicting
  std::int64_t peak_referenced() const { return peak_referenced_; }

  // Walks everything and aborts where an invariant is broken: O(size), for idle times and tests.
  void check_integrity() const;

 private:
  enum class State : std::int8_t { kFree, kCached, kReferenced };
  struct Links {
    Id previous = kNone;  // links of the cached list; the free list uses `next` alone
    Id next = kNone;
    std::int32_t num_references = 0;
    State state = State::kFree;
    CacheClass cache_class = CacheClass::kBackground;
    bool is_forgettable = false;
  };
  struct List {
    Id head = kNone;  // least recently used
    Id tail = kNone;
    std::int64_t length = 0;
  };
  static constexpr std::size_t kNumClasses = 4;

  static std::size_t index(Id id) { return static_cast<std::size_t>(id.value); }
  void push_free(Id id);
  void push_cached(Id id);
  void unlink_cached(Id id);
  std::int64_t check_free() const;
  void check_cached(const List& list) const;
  List& list_of(Id id) { return lists_[static_cast<std::size_t>(links_[index(id)].cache_class)]; }
  // The first to leave of the classes from that one on.
  Id first_of(std::size_t number) const {
    while (number < kNumClasses && lists_[number].head == kNone)
      ++number;
    return number < kNumClasses ? lists_[number].head : kNone;
  }

  std::vector<Links> links_;
  Id free_head_ = kNone;
  std::array<List, kNumClasses> lists_;
  std::array<std::int64_t, kNumClasses> most_;  // above it the oldest go back to kPlain
  std::int64_t num_free_ = 0;
  std::int64_t peak_referenced_ = 0;
};

extern template class Pool<BlockId>;
extern template class Pool<PartId>;
extern template class Pool<StateId>;

}  // namespace quire
