#include "core/draft/draft_input.h"

#include <algorithm>
#include <utility>

#include "core/content/media_names.h"
#include "kernels/check.h"

namespace quire {

DraftInput::DraftInput(std::int32_t block_size, std::int64_t max_sequences, std::int64_t max_table_blocks)
    : block_size_(block_size),
      rows_(block_size, std::max(max_sequences + 1, kMostDraftRows), max_sequences, max_table_blocks) {
  for (auto* rows : {&hidden_rows_, &logit_rows_})
    rows->reserve(static_cast<std::size_t>(max_sequences) + 1);
}

void DraftInput::clear(bool is_first) {
  rows_.clear();
  hidden_rows_.clear();
  logit_rows_.clear();
  is_first_ = is_first;
}

void DraftInput::add(const Sequence& sequence, std::int64_t begin, std::int32_t hidden_row) {
  add_unpredicted(sequence, begin, sequence.num_tokens());
  hidden_rows_.push_back(hidden_row);
  logit_rows_.push_back(static_cast<std::int32_t>(rows_.num_rows() - 1));
}

void DraftInput::add_unpredicted(const Sequence& sequence, std::int64_t begin, std::int64_t end) {
  const std::int64_t num_blocks = (end + block_size_ - 1) / block_size_;
  QUIRE_CHECK(std::cmp_less_equal(num_blocks, sequence.table.blocks.size()), "what is drafted from has blocks");
  rows_.add(sequence.table.blocks, sequence.request->media, begin, end,
            [&](std::int64_t position) { return input_id(sequence.tokens[static_cast<std::size_t>(position)]); });
}

DraftArrays DraftInput::arrays() const {
  return {.token_ids = rows_.token_ids(),
          .positions = rows_.positions(),
          .attention = rows_.attention(),
          .logit_rows = logit_rows_,
          .hidden_rows = hidden_rows_,
          .is_first = is_first_};
}

}  // namespace quire
