// The element types of tensors as an enum alone, so that the ISA level files may include it: no standard container, no
// function. Immutable facts; any thread. Sizes and names: dtype.h; how a type lies in packed panels: packed_format.h.
#pragma once

#include <cstdint>

namespace quire {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kQ3_K,
  kQ2_K,
  kMXFP4,
  kNVFP4,
  kIQ3_XXS,
  kIQ3_S,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ1_S,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kQ2_0,
  // Blocks made from Hugging Face checkpoints while weights are packed; no file holds them.
  kI4G32,   // f32 scale, zero and 16 bytes of nibbles per 32: value = scale * (quant - zero)
  kI4G128,  // kI4G32's blocks; four in a row share scales and zeros
  kF8,      // f32 scale and 32 values E4M3; four blocks in a row have equal scales
};

inline constexpr int kNumWeightTypes = 31;

}  // namespace quire
