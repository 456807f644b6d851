// Packs weights of 16 bits into tiles (half_tiles.h): pure functions of the host. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace quire::gpu {

// Whether a type is multiplied in 16 bits.
bool lies_in_half_tiles(DType type);

std::size_t half_tiles_bytes(std::int64_t rows, std::int64_t cols);

// All of a matrix, half_tiles_bytes() of it.
void pack_half_tiles(const WeightSource& source, std::span<std::byte> out);

}  // namespace quire::gpu
