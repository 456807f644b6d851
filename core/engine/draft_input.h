// DraftInput: the flat arrays of one round of drafting. Engine thread only. They keep their capacity from round to
// round.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/layers/model.h"
#include "core/sched/sequence.h"

namespace quire {

class DraftInput {
 public:
  DraftInput(std::int32_t block_size, std::int64_t max_sequences, std::int64_t max_table_blocks);

  void clear(bool is_first);
  // The sequence's rows from `begin` to its last token, drafts among its tokens included, whose blocks it has.
  // hidden_row: see DraftArrays.
  void add(const Sequence& sequence, std::int64_t begin, std::int32_t hidden_row);

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(context_len_.size()); }
  DraftArrays arrays() const;  // until the next clear()

 private:
  const std::int32_t block_size_;
  bool is_first_ = true;
  std::vector<std::int32_t> token_ids_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_len_;
  std::vector<std::int32_t> block_table_start_;
  std::vector<std::int32_t> block_tables_;
  std::vector<std::int32_t> hidden_rows_;
};

}  // namespace quire
