#include "core/engine/draft_input.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kMostBlocksReserved = 1 << 22;  // as StepInput

}  // namespace

DraftInput::DraftInput(std::int32_t block_size, std::int64_t max_sequences, std::int64_t max_table_blocks)
    : block_size_(block_size) {
  for (auto* array :
       {&token_ids_, &positions_, &slots_, &query_start_, &context_len_, &block_table_start_, &hidden_rows_})
    array->reserve(static_cast<std::size_t>(max_sequences) + 1);
  block_tables_.reserve(static_cast<std::size_t>(std::min(max_table_blocks, kMostBlocksReserved)));
  clear(true);
}

void DraftInput::clear(bool is_first) {
  for (auto* array : {&token_ids_, &positions_, &slots_, &context_len_, &block_tables_, &hidden_rows_})
    array->clear();
  query_start_.assign(1, 0);
  block_table_start_.assign(1, 0);
  is_first_ = is_first;
}

void DraftInput::add(const Sequence& sequence, std::int64_t begin, std::int32_t hidden_row) {
  const std::vector<BlockId>& blocks = sequence.table.blocks;
  const std::int64_t end = sequence.num_tokens();
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  QUIRE_CHECK(std::cmp_less_equal(num_blocks, blocks.size()), "what is drafted from has blocks");
  for (std::int64_t position = begin; position < end; ++position) {
    token_ids_.push_back(sequence.tokens[static_cast<std::size_t>(position)].value);
    positions_.push_back(static_cast<std::int32_t>(position));
    const std::int32_t block = blocks[static_cast<std::size_t>(position / block_size_)].value;
    slots_.push_back(block * block_size_ + static_cast<std::int32_t>(position % block_size_));
  }
  query_start_.push_back(static_cast<std::int32_t>(token_ids_.size()));
  context_len_.push_back(static_cast<std::int32_t>(end));
  for (std::int64_t i = 0; i < num_blocks; ++i)
    block_tables_.push_back(blocks[static_cast<std::size_t>(i)].value);
  block_table_start_.push_back(static_cast<std::int32_t>(block_tables_.size()));
  hidden_rows_.push_back(hidden_row);
}

DraftArrays DraftInput::arrays() const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .attention = {.query_start = query_start_,
                        .context_len = context_len_,
                        .block_table_start = block_table_start_,
                        .block_tables = block_tables_,
                        .slots = slots_},
          .hidden_rows = hidden_rows_,
          .is_first = is_first_};
}

}  // namespace quire
