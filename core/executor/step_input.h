// SequenceRows: the flat arrays of consecutive rows of several sequences. StepInput: builds those of a step from its
// plan's entries, once per step. Engine thread only. The arrays keep their capacity from step to step.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "core/content/row_positions.h"
#include "core/model/layers/model.h"
#include "core/sched/step_plan.h"

namespace quire {

class SequenceRows {
 public:
  // Reserves memory for these counts; max_table_blocks counts the tables of all sequences together.
  SequenceRows(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences,
               std::int64_t max_table_blocks);

  void clear();
  // Adds the rows [begin, end) of a sequence with these blocks and this media; token_at(index): the id of each.
  template <class TokenAt>
  void add(std::span<const BlockId> blocks, std::span<const MediaRun> media, std::int64_t begin, std::int64_t end,
           const TokenAt& token_at) {
    if (!media.empty() && !has_media_) begin_media();
    const RowPositions rows(media);
    for (std::int64_t position = begin; position < end; ++position) {
      token_ids_.push_back(token_at(position));
      add_position(rows.at(position));
      const std::int32_t block = blocks[static_cast<std::size_t>(position / block_size_)].value;
      slots_.push_back(block * block_size_ + static_cast<std::int32_t>(position % block_size_));
    }
    end_sequence(blocks, end);
  }

  std::int64_t num_rows() const { return std::ssize(token_ids_); }
  std::int64_t num_sequences() const { return std::ssize(context_len_); }
  std::size_t table_capacity() const { return block_tables_.capacity(); }
  // Valid until the next clear().
  std::span<const std::int32_t> token_ids() const { return token_ids_; }
  std::span<const std::int32_t> positions() const { return positions_; }  // a position per row
  // [rows, 3] of time, height and width; empty: no sequence has media.
  std::span<const std::int32_t> media_positions() const { return media_positions_; }
  AttentionBatch attention() const;

 private:
  void begin_media();
  void add_position(const std::array<std::int32_t, 3>& position) {
    positions_.push_back(position[0]);
    if (has_media_) media_positions_.insert(media_positions_.end(), position.begin(), position.end());
  }
  void end_sequence(std::span<const BlockId> blocks, std::int64_t end);

  const std::int32_t block_size_;
  std::vector<std::int32_t> token_ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> media_positions_;
  bool has_media_ = false;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_len_;
  std::vector<std::int32_t> block_table_start_;
  std::vector<std::int32_t> block_tables_;
};

// The consecutive rows of one entry whose logits, hidden states or classifier scores are wanted.
struct WantedRows {
  enum class Of : std::uint8_t { kLogits, kHidden, kLabels };
  Of of = Of::kLogits;
  std::int64_t first = 0;  // among the entry's rows
  std::int64_t count = 0;
};

class StepInput {
 public:
  // Capacities: see SequenceRows. parts: the pool of window parts; null: window layers keep every token.
  StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences, std::int64_t max_table_blocks,
            const WindowPool* parts = nullptr);

  void clear();
  // Adds the entry's rows. `pending_place`: index of the previous step's draw for the sequence's last token, if its
  // value is not known yet. Returns the index of the first wanted row among all wanted rows of its kind.
  std::int64_t add(const StepEntry& entry, WantedRows wanted, std::int32_t pending_place);

  // Valid until the next clear(). positions_per_row: the model's.
  StepArrays arrays(std::int64_t positions_per_row) const;

 private:
  void add_media(const Sequence& sequence, std::int64_t begin, std::int64_t end, std::int64_t first_row);
  void add_parts(const BlockTable& table, std::int64_t begin, std::int64_t end);

  const std::int32_t block_size_;
  const WindowPool* const parts_;
  SequenceRows rows_;
  std::vector<std::int32_t> window_tables_;  // parts in place of the rows' tables and slots
  std::vector<std::int32_t> window_slots_;
  std::vector<const Adapter*> adapters_;
  std::vector<std::int32_t> states_;
  std::vector<std::int8_t> token_types_;
  std::vector<EmbeddedRows> embedded_;
  std::vector<std::int32_t> seen_end_;  // empty: no row sees later ones
  std::vector<std::int32_t> logit_rows_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<std::int32_t> label_rows_;
};

}  // namespace quire
