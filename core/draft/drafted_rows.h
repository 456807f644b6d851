// DraftedRows: the number of each block's first rows that a drafting model has computed, so that it computes the others
// before it drafts. Engine thread only. It knows no model: its owner notes each write. Invariant: counted rows were
// computed from the tokens that the block holds now.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace quire {

class DraftedRows {
 public:
  DraftedRows(std::int64_t num_blocks, std::int32_t block_size)
      : block_size_(block_size), counts_(static_cast<std::size_t>(num_blocks)) {}

  // Number of leading rows of the sequence that are computed without a gap, at most `most`.
  std::int64_t count(std::span<const BlockId> blocks, std::int64_t most) const {
    std::int64_t rows = 0;
    for (const BlockId block : blocks) {
      const std::int32_t of_block = counts_[at(block)];
      rows += of_block;
      if (of_block < block_size_ || rows >= most) break;
    }
    return std::min(rows, most);
  }
  // The drafting model computed the rows from `begin` to `end`, which follow those counted.
  void add(std::span<const BlockId> blocks, std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin = next_block(begin)) {
      std::int32_t& count = counts_[at(blocks[static_cast<std::size_t>(begin / block_size_)])];
      count = std::max(count, static_cast<std::int32_t>(std::min(end - begin / block_size_ * block_size_,
                                                                 static_cast<std::int64_t>(block_size_))));
    }
  }
  // A step writes the sequence's rows from `begin` to `end`.
  void note_written(std::span<const BlockId> blocks, std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin = next_block(begin)) {
      std::int32_t& count = counts_[at(blocks[static_cast<std::size_t>(begin / block_size_)])];
      count = std::min(count, static_cast<std::int32_t>(begin % block_size_));
    }
  }
  void note_copied(BlockId source, BlockId destination) { counts_[at(destination)] = counts_[at(source)]; }
  void note_replaced(BlockId block) { counts_[at(block)] = 0; }

 private:
  static std::size_t at(BlockId block) { return static_cast<std::size_t>(block.value); }
  std::int64_t next_block(std::int64_t row) const { return (row / block_size_ + 1) * block_size_; }

  const std::int32_t block_size_;
  std::vector<std::int32_t> counts_;  // by block
};

}  // namespace quire
