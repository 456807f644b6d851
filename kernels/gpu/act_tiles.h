// ActTile: activations as int8 with a scale per 32, in the order in which a warp multiplies them: eight rows times 32
// features, the B operand of mma.m16n8k32. Tiles of a product lie as [rows / 8][depth / 32]. Read by host and device
// code. Invariant: a row's part of a tile depends on that row alone; rows beyond the last may hold anything.
#pragma once

#include <cstdint>

namespace quire::gpu {

inline constexpr int kTileRows = 8;

// Of one row's 32 quants: what they are multiplied with, and the sums of their halves.
struct ActScale {
  float scale;
  std::int16_t low_sum;
  std::int16_t high_sum;
};

struct alignas(16) ActTile {
  std::uint32_t quants[32][2];  // of each lane: features 4 * (lane % 4) and 16 behind them, of row lane / 4
  ActScale scales[kTileRows];
};
static_assert(sizeof(ActTile) == 320);

}  // namespace quire::gpu
