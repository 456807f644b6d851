// StepInput: builds the flat arrays of a step from its plan's entries, once per step. Engine thread only.
// The arrays keep their capacity from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/layers/model.h"
#include "core/sched/step_plan.h"

namespace quire {

// The consecutive rows of one entry whose logits, hidden states or classifier scores are wanted.
struct WantedRows {
  enum class Of : std::uint8_t { kLogits, kHidden, kLabels };
  Of of = Of::kLogits;
  std::int64_t first = 0;  // among the entry's rows
  std::int64_t count = 0;
};

class StepInput {
 public:
  // Room for so much is made at once; max_table_blocks counts the tables of all sequences together. parts: of blocks,
  // for layers with a window; null: these keep as much as the others.
  StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences, std::int64_t max_table_blocks,
            const WindowPool* parts = nullptr);

  void clear();
  // Adds the entry's rows. `pending_place`: where the step before draws the sequence's last token, if its value is not
  // known yet. Returns the index of the first wanted row among all wanted rows of its kind.
  std::int64_t add(const StepEntry& entry, WantedRows wanted, std::int32_t pending_place);

  StepArrays arrays() const;  // until the next clear()

 private:
  void add_parts(const BlockTable& table, std::int64_t begin, std::int64_t end);

  const std::int32_t block_size_;
  const WindowPool* const parts_;
  std::vector<std::int32_t> token_ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_len_;
  std::vector<std::int32_t> block_table_start_;
  std::vector<std::int32_t> block_tables_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> window_tables_;  // as block_tables_ and slots_, of parts
  std::vector<std::int32_t> window_slots_;
  std::vector<const Adapter*> adapters_;
  std::vector<std::int32_t> states_;
  std::vector<std::int8_t> token_types_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<std::int32_t> label_rows_;
};

}  // namespace quire
