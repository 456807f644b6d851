// StepInput: builds the flat arrays of a ModelInput from sequences and their chunks. Engine thread only.
// The arrays keep their capacity from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model.h"
#include "core/sched/step_plan.h"

namespace quire {

class StepInput {
 public:
  // Room for so much is made at once; max_table_blocks counts the tables of all sequences together.
  StepInput(std::int32_t block_size, std::int64_t max_rows, std::int64_t max_sequences, std::int64_t max_table_blocks);

  void clear();
  // Adds the entry's rows. Logits (or hidden states) are wanted of its rows [first_wanted, end_wanted); returns the
  // index of the first of them among all wanted rows.
  std::int64_t add(const StepEntry& entry, std::int64_t first_wanted, std::int64_t end_wanted);

  bool empty() const { return token_ids_.empty(); }
  ModelInput view() const;  // until the next clear()

 private:
  const std::int32_t block_size_;
  std::vector<std::int32_t> token_ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_len_;
  std::vector<std::int32_t> block_table_start_;
  std::vector<std::int32_t> block_tables_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> logit_rows_;
};

}  // namespace quire
