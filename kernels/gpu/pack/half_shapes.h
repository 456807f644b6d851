// Shapes that linear_half is compiled in: outputs and rows of a block, its warps, and the division of its ring in
// shared memory. Read by host and device code; immutable facts, any thread.
#pragma once

#include "kernels/gpu/pack/half_tiles.h"

namespace quire::gpu {

struct HalfShape {
  int groups;        // groups of 16 outputs per warp
  int tiles;         // tiles of 8 rows per warp
  int output_warps;  // warps per block, side by side
  int row_warps;
  int stage_blocks;  // blocks of the depth fetched together
  int stages;

  constexpr int outputs() const { return groups * output_warps * kHalfOutputs; }
  constexpr int rows() const { return tiles * row_warps * kHalfRows; }
};

inline constexpr int kMostItemRows = 64;  // rows per item of experts; larger shapes take no item

// Few rows: weights pass as fast as memory gives them. Blocks of few outputs, so that small matrices keep many blocks
// at work, and with many bytes under way.
inline constexpr HalfShape kHalfFew[] = {{1, 1, 2, 1, 4, 5}, {1, 4, 4, 1, 2, 8}, {2, 4, 2, 2, 2, 6}};
// More rows of small matrices.
inline constexpr HalfShape kHalfMiddle{4, 4, 2, 2, 2, 4};
// Many rows: a warp multiplies 64 outputs by 64 rows.
inline constexpr HalfShape kHalfWide{4, 8, 4, 2, 1, 4};

}  // namespace quire::gpu
