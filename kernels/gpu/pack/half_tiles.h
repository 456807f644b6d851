// Half tiles: how weights and activations of 16 bits lie in a device's memory for mma.m16n8k16. A block of the depth is
// 32 features; of it, 16 outputs (WeightTile) or eight rows (HalfTile) lie together, 64 bytes each. A lane multiplies
// 16 bytes of an output and of a row as they lie: lane % 4 chooses the features, so that both operands have the same
// order and nothing is shuffled. Weights lie as [outputs / 16][depth / 32], activations as [rows / 8][depth / 32]. Read
// by host and device code; immutable facts, any thread. Invariant: what pads outputs and depth is zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::gpu {

inline constexpr int kHalfBlock = 32;  // features
inline constexpr int kHalfOutputs = 16;
inline constexpr int kHalfRows = 8;
inline constexpr int kHalfRowBytes = 2 * kHalfBlock;  // bytes of an output or row in its tile

struct alignas(16) WeightTile {
  std::uint16_t values[kHalfOutputs][kHalfBlock];
};

struct alignas(16) HalfTile {
  std::uint16_t values[kHalfRows][kHalfBlock];
};

static_assert(sizeof(WeightTile) == 1024 && sizeof(HalfTile) == 512);

}  // namespace quire::gpu
