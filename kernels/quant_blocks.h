// The blocks of GGUF's quantised types, split into unsigned quants and scales: the one place that knows their bit
// layout. Any thread. Shared by dequantize and by the packing of weights. Source: ggml's GGUF specification. Invariant:
// value = scale * (quant - zero), or scale * quant - minimum for the types with minima.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace quire {

inline constexpr int kSubBlock = 32;

// One run of 32 elements of a quantised row.
struct QuantGroup {
  std::array<std::uint8_t, kSubBlock> quants;
  std::uint16_t scale_f16 = 0;    // d
  std::uint16_t minimum_f16 = 0;  // m, dmin
  // K-quants: integer multipliers of d and dmin. Q6_K has one signed scale per 16 elements in sub_scale[0..1].
  std::array<std::int8_t, 2> sub_scale{};
  std::uint8_t sub_minimum = 0;
};

// Splits group `group` (of block_size / 32) of one block.
void split_quant_group(DType type, const std::byte* block, int group, QuantGroup& out);

// What is subtracted from a quant before scaling: 128 for Q8_0 (stored offset), 8, 16, 32, or 0 for types with minima.
int quant_zero(DType type);

}  // namespace quire
