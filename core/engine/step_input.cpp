#include "core/engine/step_input.h"

#include <algorithm>

namespace quire {

namespace {

constexpr std::int64_t kMostBlocksReserved = 1 << 22;  // 16 MiB of addresses, of memory only what is used

}  // namespace

StepInput::StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences,
                     std::int64_t max_table_blocks)
    : block_size_(block_size) {
  for (auto* rows : {&token_ids_, &positions_, &slots_, &logit_rows_})
    rows->reserve(static_cast<std::size_t>(max_rows));
  for (auto* sequences : {&query_start_, &context_len_, &block_table_start_}) {
    sequences->reserve(static_cast<std::size_t>(max_sequences) + 1);
  }
  block_tables_.reserve(static_cast<std::size_t>(std::min(max_table_blocks, kMostBlocksReserved)));
  clear();
}

void StepInput::clear() {
  for (auto* array : {&token_ids_, &positions_, &context_len_, &block_tables_, &slots_, &logit_rows_})
    array->clear();
  query_start_.assign(1, 0);
  block_table_start_.assign(1, 0);
}

std::int64_t StepInput::add(const StepEntry& entry, std::int64_t first_wanted, std::int64_t end_wanted) {
  const Sequence& sequence = *entry.sequence;
  const std::vector<BlockId>& blocks = sequence.table.blocks;
  const auto first_row = static_cast<std::int32_t>(token_ids_.size());
  const std::int64_t end = sequence.num_computed + entry.num_tokens;
  for (std::int64_t position = sequence.num_computed; position < end; ++position) {
    token_ids_.push_back(sequence.tokens[static_cast<std::size_t>(position)].value);
    positions_.push_back(static_cast<std::int32_t>(position));
    const std::int32_t block = blocks[static_cast<std::size_t>(position / block_size_)].value;
    slots_.push_back(block * block_size_ + static_cast<std::int32_t>(position % block_size_));
  }
  query_start_.push_back(static_cast<std::int32_t>(token_ids_.size()));
  context_len_.push_back(static_cast<std::int32_t>(end));
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  for (std::int64_t i = 0; i < num_blocks; ++i)
    block_tables_.push_back(blocks[static_cast<std::size_t>(i)].value);
  block_table_start_.push_back(static_cast<std::int32_t>(block_tables_.size()));
  const auto first_index = static_cast<std::int64_t>(logit_rows_.size());
  for (std::int64_t row = first_wanted; row < end_wanted; ++row) {
    logit_rows_.push_back(first_row + static_cast<std::int32_t>(row));
  }
  return first_index;
}

ModelInput StepInput::view() const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .attention = {.query_start = query_start_,
                        .context_len = context_len_,
                        .block_table_start = block_table_start_,
                        .block_tables = block_tables_,
                        .slots = slots_},
          .logit_rows = logit_rows_};
}

}  // namespace quire
