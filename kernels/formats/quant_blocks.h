// The blocks of quantised types, split into codes and scales: the one place that knows their bit layout. Any thread.
// Shared by dequantize and by the packing of weights. Source: ggml's GGUF specification and block definitions.
// Invariant: codes and scales mean what packed_format(type) says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/formats/dtype.h"

namespace quire {

inline constexpr int kSubBlock = 32;

// 32 consecutive elements of a quantised row.
struct QuantGroup {
  std::array<std::uint8_t, kSubBlock> quants;  // codes
  std::uint16_t scale_f16 = 0;                 // d
  std::uint16_t minimum_f16 = 0;               // m, dmin
  // Integer multipliers of d, or whole scales of one byte, one per 16 elements if there are two.
  std::array<std::int8_t, 2> sub_scale{};
  std::uint8_t sub_minimum = 0;  // multiplier of dmin, or a zero
  float scale_f32 = 0.0f;
};

// Splits group `group` (of block_size / 32) of one block.
void split_quant_group(DType type, const std::byte* block, int group, QuantGroup& out);

}  // namespace quire
