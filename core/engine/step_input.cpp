#include "core/engine/step_input.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kMostBlocksReserved = 1 << 22;  // 16 MiB of addresses, of memory only what is used

std::int32_t token_at(const StepEntry& entry, std::int64_t position, std::int32_t pending_place) {
  const Sequence& sequence = *entry.sequence;
  const std::int64_t past_known = position - sequence.num_tokens();
  if (past_known < 0) return sequence.tokens[static_cast<std::size_t>(position)].value;
  return entry.num_drafts > 0 ? sequence.drafts[static_cast<std::size_t>(past_known)].value : -1 - pending_place;
}

}  // namespace

StepInput::StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences,
                     std::int64_t max_table_blocks, const WindowPool* parts)
    : block_size_(block_size), parts_(parts) {
  for (auto* rows : {&token_ids_, &positions_, &slots_, &logit_rows_, &hidden_rows_, &label_rows_})
    rows->reserve(static_cast<std::size_t>(max_rows));
  for (auto* sequences : {&query_start_, &context_len_, &block_table_start_, &states_}) {
    sequences->reserve(static_cast<std::size_t>(max_sequences) + 1);
  }
  adapters_.reserve(static_cast<std::size_t>(max_sequences));
  token_types_.reserve(static_cast<std::size_t>(max_rows));
  block_tables_.reserve(static_cast<std::size_t>(std::min(max_table_blocks, kMostBlocksReserved)));
  if (parts_ != nullptr) {
    window_slots_.reserve(static_cast<std::size_t>(max_rows));
    window_tables_.reserve(block_tables_.capacity());
  }
  clear();
}

void StepInput::clear() {
  for (auto* array : {&token_ids_, &positions_, &context_len_, &block_tables_, &slots_, &states_, &logit_rows_,
                      &hidden_rows_, &label_rows_, &window_tables_, &window_slots_})
    array->clear();
  token_types_.clear();
  adapters_.clear();
  query_start_.assign(1, 0);
  block_table_start_.assign(1, 0);
}

std::int64_t StepInput::add(const StepEntry& entry, WantedRows wanted, std::int32_t pending_place) {
  const Sequence& sequence = *entry.sequence;
  const std::vector<BlockId>& blocks = sequence.table.blocks;
  const auto first_row = static_cast<std::int32_t>(token_ids_.size());
  const std::int64_t end = sequence.num_computed + entry.num_tokens;
  const std::int64_t second_text = sequence.request->second_text;
  for (std::int64_t position = sequence.num_computed; position < end; ++position) {
    token_ids_.push_back(token_at(entry, position, pending_place));
    positions_.push_back(static_cast<std::int32_t>(position));
    token_types_.push_back(second_text > 0 && position >= second_text ? 1 : 0);
    const std::int32_t block = blocks[static_cast<std::size_t>(position / block_size_)].value;
    slots_.push_back(block * block_size_ + static_cast<std::int32_t>(position % block_size_));
  }
  query_start_.push_back(static_cast<std::int32_t>(token_ids_.size()));
  context_len_.push_back(static_cast<std::int32_t>(end));
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  for (std::int64_t i = 0; i < num_blocks; ++i)
    block_tables_.push_back(blocks[static_cast<std::size_t>(i)].value);
  block_table_start_.push_back(static_cast<std::int32_t>(block_tables_.size()));
  if (parts_ != nullptr) add_parts(sequence.table, sequence.num_computed, end);
  adapters_.push_back(sequence.request->adapter.get());
  states_.push_back(sequence.table.state.value);
  std::vector<std::int32_t>& rows = wanted.of == WantedRows::Of::kLogits   ? logit_rows_
                                    : wanted.of == WantedRows::Of::kHidden ? hidden_rows_
                                                                           : label_rows_;
  const auto first_index = static_cast<std::int64_t>(rows.size());
  for (std::int64_t row = wanted.first; row < wanted.first + wanted.count; ++row) {
    rows.push_back(first_row + static_cast<std::int32_t>(row));
  }
  return first_index;
}

// For a block behind the window stands the first part that is kept: what a kernel reads there, beside what it uses, are
// numbers of the sequence itself.
void StepInput::add_parts(const BlockTable& table, std::int64_t begin, std::int64_t end) {
  const auto part_at = [&](std::int64_t i) {
    const PartId part = parts_->part_of(table.blocks[static_cast<std::size_t>(i)]);
    QUIRE_CHECK(part != kNoPart, "what a window shows is kept");
    return part.value;
  };
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  for (std::int64_t i = 0; i < num_blocks; ++i)
    window_tables_.push_back(part_at(std::max<std::int64_t>(i, table.pinned_begin)));
  const auto* const own = window_tables_.data() + std::ssize(window_tables_) - num_blocks;
  for (std::int64_t position = begin; position < end; ++position)
    window_slots_.push_back(own[position / block_size_] * block_size_ +
                            static_cast<std::int32_t>(position % block_size_));
}

StepArrays StepInput::arrays() const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .attention = {.query_start = query_start_,
                        .context_len = context_len_,
                        .block_table_start = block_table_start_,
                        .block_tables = block_tables_,
                        .slots = slots_},
          .adapters = adapters_,
          .token_types = token_types_,
          .states = states_,
          .window = {.query_start = query_start_,
                     .context_len = context_len_,
                     .block_table_start = block_table_start_,
                     .block_tables = window_tables_,
                     .slots = window_slots_},
          .logit_rows = logit_rows_,
          .hidden_rows = hidden_rows_,
          .label_rows = label_rows_};
}

}  // namespace quire
