// device_step_bytes: memory of steps on a GPU, and pinned on the host, besides weights, activations, states and KV; for
// the memory plan. Pure; any thread. Memory that a single request can make grow without limit (penalties of 100,000
// tokens) is not counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// Limit for the partial results of attention; one row may exceed it.
inline constexpr std::size_t kPartialBytes = std::size_t{128} << 20;

// Rows of logits that are drawn from at once.
inline constexpr std::int64_t kDrawRows = 16;

// Size of each of the two pinned buffers that carry weights to a GPU, which are kept afterwards.
inline constexpr std::size_t kLoadingPartBytes = std::size_t{8} << 20;

// The largest step of a model.
struct StepBounds {
  std::int64_t rows = 0;
  std::int64_t slice_rows = 0;  // rows computed together
  std::int64_t logit_rows = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // per sequence
  std::int64_t block_size = 0;
  std::int64_t draws = 0;
  std::int64_t vocab_size = 0;
  std::int64_t widest_row = 0;  // largest input of a product, in floats
  std::int64_t num_experts = 0;
  std::int64_t chosen_rows = 0;  // rows that experts compute per row
  std::int64_t widest_expert_row = 0;
  std::int64_t partial_floats = 0;  // a row's result of one partition of attention
};

struct DeviceStepBytes {
  std::uint64_t on_device = 0;
  std::uint64_t pinned = 0;  // on the host
};

DeviceStepBytes device_step_bytes(const StepBounds& step);

}  // namespace quire
