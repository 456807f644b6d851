// DraftInput: the flat arrays of one round of drafting. Engine thread only. They keep their capacity from round to
// round.
#pragma once

#include <cstdint>
#include <vector>

#include "core/executor/step_input.h"
#include "core/sched/sequence.h"

namespace quire {

class DraftInput {
 public:
  DraftInput(std::int32_t block_size, std::int64_t max_sequences, std::int64_t max_table_blocks);

  void clear(bool is_first);
  // Adds the sequence's rows from `begin` to its last token, drafts included; it has blocks for them. The token after
  // the last row is predicted. hidden_row: see DraftArrays.
  void add(const Sequence& sequence, std::int64_t begin, std::int32_t hidden_row);
  // Adds rows of which only K and V are needed.
  void add_unpredicted(const Sequence& sequence, std::int64_t begin, std::int64_t end);

  std::int64_t num_rows() const { return rows_.num_rows(); }
  DraftArrays arrays() const;  // until the next clear()

 private:
  const std::int32_t block_size_;
  bool is_first_ = true;
  SequenceRows rows_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<std::int32_t> logit_rows_;
};

}  // namespace quire
