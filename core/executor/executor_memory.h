// ExecutorMemory: the blocks, parts and states that an executor's steps compute with, and how a plan moves and copies
// them. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/executor/executor.h"

namespace quire {

struct ExecutorLimits {
  std::int64_t max_rows = 0;       // rows of a step
  std::int64_t max_sequences = 0;  // sequences in a step; as many choices may be forked in it
  std::int64_t max_tokens = 0;     // tokens of a sequence

  std::int64_t max_logit_rows() const { return std::min(max_sequences + kMaxPromptLogitRows, max_rows); }
  std::int64_t max_draws() const { return max_step_draws(max_sequences); }
};

struct ExecutorMemory {
  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<StateStorage> states;       // null: the model has no recurrent layers
  std::unique_ptr<KvStorage> window_storage;  // null: all layers keep all tokens

  // Does a plan's moves, then its copies. Allocates nothing on the host.
  MoveTimes move(const Transfers& transfers) const;
  void copy(std::span<const BlockCopy> copies) const;
  // Appends the moves in a device's form.
  void list_moves(std::span<const BlockMove> moves, std::vector<BlockTransfer>& out) const;
  StepArrays with_storages(StepArrays arrays) const;
};

// Helpers of executor_for().
ExecutorLimits executor_limits(const Model& model, const KvStorage& storage, const SchedulerOptions& scheduler);
ExecutorMemory executor_memory(const Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                               const SchedulerOptions& scheduler, const KvCounts& counts);

// A row of logits on the host.
inline std::span<float> logits_of(const MatrixView& matrix, std::int64_t row) {
  return {matrix.data + row * matrix.stride, static_cast<std::size_t>(matrix.cols)};
}
// The draw at index i with its logits, in the Sampler's form.
SampleRow sample_row(std::span<const DrawRow> draws, std::size_t i, std::span<float> logits);
// The values of rows without gaps between them.
std::span<const float> dense_values(const MatrixView& rows);

}  // namespace quire
