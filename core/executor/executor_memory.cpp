#include "core/executor/executor_memory.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::int64_t kStatesPerSequence = 3;  // its current state and two snapshots

}  // namespace

MoveTimes ExecutorMemory::move(const Transfers& transfers) const {
  const MoveTimes times = do_moves(transfers.moves, *storage, states.get(), window_storage.get());
  copy(transfers.copies);
  return times;
}

void ExecutorMemory::copy(std::span<const BlockCopy> copies) const {
  for (const BlockCopy& copy : copies) {
    switch (copy.of) {
      case BlockCopy::Of::kBlock: storage->copy_block(copy.source.value, copy.destination.value); break;
      case BlockCopy::Of::kPart: window_storage->copy_block(copy.source.value, copy.destination.value); break;
      case BlockCopy::Of::kState: states->copy_state(copy.source.value, copy.destination.value); break;
    }
  }
}

void ExecutorMemory::list_moves(std::span<const BlockMove> moves, std::vector<BlockTransfer>& out) const {
  for (const BlockMove& move : moves) {
    if (move.kind == BlockMove::Kind::kCopyState) {
      out.push_back({.states = states.get(), .number = move.extras.state.value, .source = move.source.value});
      continue;
    }
    const auto add = [&](BlockTransfer transfer, std::size_t begin, std::size_t bytes) {
      if (bytes == 0) return;  // blocks of a model whose layers all have a window
      if (move.kind == BlockMove::Kind::kOffload) {
        transfer.out = std::span(*move.unfilled).subspan(begin, bytes);
      } else {
        transfer.in = std::span(*move.bytes).subspan(begin, bytes);
      }
      out.push_back(transfer);
    };
    const std::size_t block_bytes = storage->block_bytes();
    if (move.block != kNoBlock) add({.storage = storage.get(), .number = move.block.value}, 0, block_bytes);
    const auto& [part, state] = move.extras;
    const std::size_t part_bytes = window_storage == nullptr ? 0 : window_storage->block_bytes();
    if (part != kNoPart) add({.storage = window_storage.get(), .number = part.value}, block_bytes, part_bytes);
    if (state != kNoState)
      add({.states = states.get(), .number = state.value}, block_bytes + part_bytes, states->state_bytes());
  }
}

StepArrays ExecutorMemory::with_storages(StepArrays arrays) const {
  arrays.state_storage = states.get();
  arrays.window_storage = window_storage.get();
  return arrays;
}

ExecutorLimits executor_limits(const Model& model, const KvStorage& storage, const SchedulerOptions& scheduler) {
  const std::int64_t pool = storage.layout().num_blocks * storage.layout().block_size;
  const std::int64_t asked = scheduler.max_model_len > 0 ? scheduler.max_model_len : pool;
  ExecutorLimits limits{.max_rows = scheduler.max_num_batched_tokens,
                        .max_sequences = scheduler.max_num_seqs,
                        .max_tokens = std::min({asked, pool, model.max_context()})};
  if (!model.is_causal()) limits.max_rows = std::max(limits.max_rows, limits.max_tokens);
  return limits;
}

ExecutorMemory executor_memory(const Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                               const SchedulerOptions& scheduler, const KvCounts& counts) {
  ExecutorMemory memory;
  if (model.state_floats() > 0) {
    if (backend.recurrent() == nullptr)
      throw StartupError(backend.name() + " does not compute the model's recurrent layers");
    const std::int64_t num_wanted =
        counts.num_states > 0 ? counts.num_states : kStatesPerSequence * scheduler.max_num_seqs;
    memory.states = backend.recurrent()->allocate_states({.num_states = num_wanted, .floats = model.state_floats()});
  }
  if (counts.num_window_parts > 0) {
    KvLayout layout = model.kv_split().windowed;
    layout.num_blocks = counts.num_window_parts;
    layout.block_size = storage->layout().block_size;
    layout.dtype = storage->layout().dtype;
    memory.window_storage = backend.allocate_kv(layout);
  }
  memory.storage = std::move(storage);
  return memory;
}

SampleRow sample_row(std::span<const DrawRow> draws, std::size_t i, std::span<float> logits) {
  const DrawRow& draw = draws[i];
  const bool is_shared = (i > 0 && draws[i - 1].logit_row == draw.logit_row) ||
                         (i + 1 < draws.size() && draws[i + 1].logit_row == draw.logit_row);
  return {.logits = logits,
          .is_shared = is_shared,
          .state = draw.state,
          .tokens = draw.tokens,
          .num_prompt_tokens = draw.num_prompt_tokens,
          .mask = draw.mask};
}

std::span<const float> dense_values(const MatrixView& rows) {
  QUIRE_CHECK(rows.rows == 0 || rows.stride == rows.cols, "hidden states and labels lie row after row");
  return {rows.data, static_cast<std::size_t>(rows.rows * rows.cols)};
}

}  // namespace quire
