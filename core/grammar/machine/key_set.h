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
    ++generation_;
  }
  // False if the key is already in the set.
  bool insert(std::uint64_t key) {
    if (2 * (num_keys_ + 1) > cells_.size()) grow();
    Cell& cell = cell_of(key);
    if (cell.generation == generation_) return false;
    cell = {key, generation_};
    ++num_keys_;
    return true;
  }

 private:
  struct Cell {
    std::uint64_t key = 0;
    std::uint64_t generation = 0;  // at its insertion
  };
  Cell& cell_of(std::uint64_t key) {
    const std::size_t mask = cells_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15ull >> 32) & mask;
    while (cells_[at].generation == generation_ && cells_[at].key != key)
      at = (at + 1) & mask;
    return cells_[at];
  }
  void grow() {
    std::vector<Cell> before = std::exchange(cells_, std::vector<Cell>(cells_.empty() ? 128 : 2 * cells_.size()));
    for (const Cell& cell : before) {
      if (cell.generation == generation_) cell_of(cell.key) = cell;
    }
  }

  std::vector<Cell> cells_;
  std::size_t num_keys_ = 0;
  std::uint64_t generation_ = 1;
};

}  // namespace quire::grammar
