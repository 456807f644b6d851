// KeySet: a set of 64-bit keys that keeps its memory and is cleared in constant time. One thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace quire::grammar {

class KeySet {
 public:
  bool empty() const { return num_keys_ == 0; }
  void clear() {
    if (num_keys_ == 0) return;
    num_keys_ = 0;
    ++round_;
  }
  // False if the key is already in the set.
  bool insert(std::uint64_t key) {
    if (2 * (num_keys_ + 1) > slots_.size()) grow();
    Slot& slot = slot_of(key);
    if (slot.round == round_) return false;
    slot = {key, round_};
    ++num_keys_;
    return true;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint64_t round = 0;  // round of its insertion
  };
  Slot& slot_of(std::uint64_t key) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15ull >> 32) & mask;
    while (slots_[at].round == round_ && slots_[at].key != key)
      at = (at + 1) & mask;
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 128 : 2 * slots_.size()));
    for (const Slot& slot : before) {
      if (slot.round == round_) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t num_keys_ = 0;
  std::uint64_t round_ = 1;
};

}  // namespace quire::grammar
