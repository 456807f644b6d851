// Encodes f32 values in tensor types of GGUF. Any thread. Rounds each block to the nearest by its own range: simple and
// correct, for synthetic models and tests; not the importance-weighted search of published files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"

namespace quire {

// Whether quantize() writes the type; the others are only read.
bool can_quantize(DType type);

// values: finite, a multiple of the type's block size; out: dtype_bytes(type, values.size()).
void quantize(DType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace quire
