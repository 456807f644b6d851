// ActTile: activations as int8 with a scale per 32, in the order in which a warp multiplies them: eight rows times 32
// features, the B operand of mma.m16n8k32. Tiles of a product lie as [depth / 32][tiles of rows]. Read by host and
// device code. Invariant: a row's bytes in a tile depend on that row alone; rows beyond the last may hold anything.
#pragma once

#include <cstdint>

namespace quire::gpu {

inline constexpr int kTileRows = 8;

// Factor of one row's 32 quants, and the sums of their halves.
struct ActScale {
  float scale;
  std::int16_t low_sum;
  std::int16_t high_sum;
};

struct alignas(16) ActTile {
  std::uint32_t quants[32][2];  // by lane: features from 4 * (lane % 4), and from 16 later
  ActScale scales[kTileRows];
};
static_assert(sizeof(ActTile) == 320);

// Tiles that a kernel reads of each block of the depth: those of whole groups of rows, which it computes together.
constexpr std::int64_t tiles_of_rows(std::int64_t rows, std::int64_t together) {
  return (rows + together - 1) / together * together / kTileRows;
}
inline constexpr std::int64_t kMostTilesOfItem = 4;  // tiles per item of experts

}  // namespace quire::gpu
