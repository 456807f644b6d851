// Packs weights of 16 bits into tiles (half_tiles.h): pure functions of the host. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace quire::gpu {

// Returns whether a type is multiplied in 16 bits.
bool lies_in_half_tiles(DType type);

// Bytes of 16 outputs, and of a whole matrix.
std::size_t half_group_bytes(std::int64_t cols);
std::size_t half_tiles_bytes(std::int64_t rows, std::int64_t cols);

// Outputs [16 * group, 16 * group + 16) of the source, half_group_bytes() of them, all of which are written; outputs
// beyond the source's are zeros.
void pack_half_group(const WeightSource& source, std::int64_t group, std::byte* out);

}  // namespace quire::gpu
