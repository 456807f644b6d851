// Packs weights into strips (strips.h): pure functions of the host. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace quire::gpu {

// Returns whether a type is multiplied in int8, and is therefore stored in strips.
bool lies_in_strips(DType type);

// Bytes of 16 outputs, and of a whole matrix.
std::size_t strip_group_bytes(DType type, std::int64_t cols);
std::size_t strips_bytes(DType type, std::int64_t rows, std::int64_t cols);

// Outputs [16 * group, 16 * group + 16) of the source, strip_group_bytes() of them, all of which are written; outputs
// beyond the source's are zeros.
void pack_strip_group(const WeightSource& source, std::int64_t group, std::byte* out);

}  // namespace quire::gpu
