#include "core/executor/step_input.h"

#include <algorithm>

#include "core/content/media_names.h"
#include "core/model/parts/views.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kMostBlocksReserved = 1 << 22;  // 16 MiB of addresses; memory is used only when touched

std::int32_t token_at(const StepEntry& entry, std::int64_t position, std::int32_t pending_place) {
  const Sequence& sequence = *entry.sequence;
  const std::int64_t past_known = position - sequence.num_tokens();
  if (past_known < 0) return input_id(sequence.tokens[static_cast<std::size_t>(position)]);
  return entry.num_drafts > 0 ? sequence.drafts[static_cast<std::size_t>(past_known)].value : -1 - pending_place;
}

}  // namespace

SequenceRows::SequenceRows(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences,
                           std::int64_t max_table_blocks)
    : block_size_(block_size) {
  for (auto* rows : {&token_ids_, &positions_, &slots_})
    rows->reserve(static_cast<std::size_t>(max_rows));
  for (auto* sequences : {&query_start_, &context_len_, &block_table_start_})
    sequences->reserve(static_cast<std::size_t>(max_sequences) + 1);
  block_tables_.reserve(static_cast<std::size_t>(std::min(max_table_blocks, kMostBlocksReserved)));
  clear();
}

void SequenceRows::clear() {
  for (auto* array : {&token_ids_, &positions_, &media_positions_, &slots_, &context_len_, &block_tables_})
    array->clear();
  has_media_ = false;
  query_start_.assign(1, 0);
  block_table_start_.assign(1, 0);
}

void SequenceRows::begin_media() {
  has_media_ = true;
  media_positions_.reserve(3 * positions_.capacity());
  for (const std::int32_t position : positions_)
    media_positions_.insert(media_positions_.end(), 3, position);
}

void SequenceRows::end_sequence(std::span<const BlockId> blocks, std::int64_t end) {
  query_start_.push_back(static_cast<std::int32_t>(token_ids_.size()));
  context_len_.push_back(static_cast<std::int32_t>(end));
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  for (std::int64_t i = 0; i < num_blocks; ++i)
    block_tables_.push_back(blocks[static_cast<std::size_t>(i)].value);
  block_table_start_.push_back(static_cast<std::int32_t>(block_tables_.size()));
}

AttentionBatch SequenceRows::attention() const {
  return {.query_start = query_start_,
          .context_len = context_len_,
          .block_table_start = block_table_start_,
          .block_tables = block_tables_,
          .slots = slots_};
}

StepInput::StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences,
                     std::int64_t max_table_blocks, const WindowPool* parts)
    : block_size_(block_size), parts_(parts), rows_(block_size, max_rows, max_sequences, max_table_blocks) {
  for (auto* rows : {&logit_rows_, &hidden_rows_, &label_rows_})
    rows->reserve(static_cast<std::size_t>(max_rows));
  states_.reserve(static_cast<std::size_t>(max_sequences) + 1);
  adapters_.reserve(static_cast<std::size_t>(max_sequences));
  token_types_.reserve(static_cast<std::size_t>(max_rows));
  if (parts_ != nullptr) {
    window_slots_.reserve(static_cast<std::size_t>(max_rows));
    window_tables_.reserve(rows_.table_capacity());
  }
}

void StepInput::clear() {
  rows_.clear();
  for (auto* array : {&states_, &logit_rows_, &hidden_rows_, &label_rows_, &window_tables_, &window_slots_})
    array->clear();
  token_types_.clear();
  adapters_.clear();
  embedded_.clear();
  seen_end_.clear();
}

std::int64_t StepInput::add(const StepEntry& entry, WantedRows wanted, std::int32_t pending_place) {
  const Sequence& sequence = *entry.sequence;
  const std::int64_t first_row = rows_.num_rows();
  const std::int64_t end = sequence.num_computed + entry.num_tokens;
  rows_.add(sequence.table.blocks, sequence.request->media, sequence.num_computed, end,
            [&](std::int64_t position) { return token_at(entry, position, pending_place); });
  const std::int64_t second_text = sequence.request->second_text;
  for (std::int64_t position = sequence.num_computed; position < end; ++position)
    token_types_.push_back(second_text > 0 && position >= second_text ? 1 : 0);
  if (!sequence.media_rows.empty()) add_media(sequence, sequence.num_computed, end, first_row);
  if (!seen_end_.empty()) seen_end_.resize(static_cast<std::size_t>(rows_.num_rows()), 0);
  if (parts_ != nullptr) add_parts(sequence.table, sequence.num_computed, end);
  adapters_.push_back(sequence.request->adapter.get());
  states_.push_back(sequence.table.state.value);
  std::vector<std::int32_t>& rows = wanted.of == WantedRows::Of::kLogits   ? logit_rows_
                                    : wanted.of == WantedRows::Of::kHidden ? hidden_rows_
                                                                           : label_rows_;
  const auto first_index = static_cast<std::int64_t>(rows.size());
  for (std::int64_t row = wanted.first; row < wanted.first + wanted.count; ++row) {
    rows.push_back(static_cast<std::int32_t>(first_row + row));
  }
  return first_index;
}

void StepInput::add_media(const Sequence& sequence, std::int64_t begin, std::int64_t end, std::int64_t first_row) {
  for (std::size_t i = 0; i < sequence.media_rows.size(); ++i) {
    const MediaRun& run = sequence.request->media[i];
    const std::int64_t first = std::max(run.begin, begin);
    const std::int64_t last = std::min(run.end(), end);
    if (first >= last) continue;
    QUIRE_CHECK(sequence.media_rows[i] != nullptr, "rows of media are computed once they are encoded");
    embedded_.push_back({first_row + first - begin,
                         row_range(sequence.media_rows[i]->rows, run.first_row + first - run.begin, last - first)});
    if (!run.is_bidirectional) continue;
    seen_end_.resize(static_cast<std::size_t>(rows_.num_rows()), 0);
    for (std::int64_t index = first; index < last; ++index)
      seen_end_[static_cast<std::size_t>(first_row + index - begin)] = static_cast<std::int32_t>(run.end());
  }
}

// Blocks behind the window are replaced by the first kept part: a kernel that reads past its window then sees the
// sequence's own numbers.
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

StepArrays StepInput::arrays(std::int64_t positions_per_row) const {
  AttentionBatch attention = rows_.attention();
  attention.seen_end = seen_end_;
  const bool has_parts = positions_per_row > 1 && !rows_.media_positions().empty();
  AttentionBatch window = attention;
  window.block_tables = window_tables_;
  window.slots = window_slots_;
  return {.token_ids = rows_.token_ids(),
          .positions = has_parts ? rows_.media_positions() : rows_.positions(),
          .positions_per_row = has_parts ? positions_per_row : 1,
          .embedded = embedded_,
          .attention = attention,
          .adapters = adapters_,
          .token_types = token_types_,
          .states = states_,
          .window = window,
          .logit_rows = logit_rows_,
          .hidden_rows = hidden_rows_,
          .label_rows = label_rows_};
}

}  // namespace quire
