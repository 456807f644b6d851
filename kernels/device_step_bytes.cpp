#include "kernels/device_step_bytes.h"

#include <algorithm>

#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/pack/act_tiles.h"
#include "kernels/gpu/pack/half_tiles.h"
#include "kernels/step_ops.h"

namespace quire {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kCodeAndGraphs = 64 * kMiB;  // code of the kernels
constexpr std::int64_t kMoved = 32 * kMiB;          // blocks of a step on their way from and to the host
constexpr std::int64_t kRowArrays = 1024;           // ids, positions, places and rotations of a row
constexpr std::int64_t kDrawArrays = 1024;          // penalties and parameters of a draw
constexpr std::int64_t kDrawToken = 16;             // an edited token of a draw

// A product's inputs: as int8, as 16 bits, or as they are where they are made.
std::int64_t input_bytes(std::int64_t rows, std::int64_t features) {
  constexpr std::int64_t kTile = sizeof(gpu::ActTile) / gpu::kTileRows;
  constexpr std::int64_t kHalf = sizeof(gpu::HalfTile) / gpu::kHalfRows;
  const std::int64_t blocks = features / gpu::kHalfBlock + 1;
  constexpr std::int64_t kBehind = 128;  // rows of tiles that kernels read behind the last one, at most
  return (rows + kBehind) * blocks * (kTile + kHalf + gpu::kHalfBlock * static_cast<std::int64_t>(sizeof(float)));
}

std::int64_t expert_bytes(const StepBounds& step) {
  if (step.num_experts == 0) return 0;
  const std::int64_t rows = step.slice_rows * step.chosen_rows;
  return input_bytes(rows + step.num_experts * (gpu::kTileRows - 1), step.widest_expert_row) +
         rows * 8 * static_cast<std::int64_t>(sizeof(std::int32_t));
}

std::int64_t partitions(const StepBounds& step) {
  return step.tokens / gpu::kPartitionTokens + 2;
}

std::int64_t partial_bytes(const StepBounds& step) {
  const std::int64_t of_one = partitions(step) * step.partial_floats * static_cast<std::int64_t>(sizeof(float));
  return std::min(step.slice_rows * of_one, std::max(of_one, static_cast<std::int64_t>(kPartialBytes)));
}

std::int64_t array_bytes(const StepBounds& step) {
  const std::int64_t block_tables =
      step.sequences * (step.tokens / step.block_size + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t items = step.rows * partitions(step) * static_cast<std::int64_t>(sizeof(gpu::AttendItem));
  const std::int64_t draws = step.draws * (2 * step.vocab_size / 8 + kDrawArrays);
  const std::int64_t all = step.rows * kRowArrays + 2 * block_tables + items + draws;
  return all + all / 4 + 4 * kMiB;  // memory is taken in chunks
}

std::int64_t drawn_bytes(const StepBounds& step) {
  return step.draws * static_cast<std::int64_t>(sizeof(TokenDrawn) + sizeof(TokenScored));
}

}  // namespace

DeviceStepBytes device_step_bytes(const StepBounds& step) {
  const std::int64_t both = array_bytes(step) + drawn_bytes(step);
  const std::int64_t results = step.logit_rows * step.vocab_size * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t on_device = input_bytes(step.slice_rows, step.widest_row) + expert_bytes(step) +
                                 partial_bytes(step) + kDrawRows * step.vocab_size * kDrawToken +
                                 StepOps::kInFlight * both + kCodeAndGraphs;
  return {.on_device = static_cast<std::uint64_t>(on_device),
          .pinned = static_cast<std::uint64_t>(StepOps::kInFlight * (both + results + kMoved)) + 2 * kLoadingPartBytes};
}

}  // namespace quire
