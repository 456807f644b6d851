// Encodes f32 values in tensor types of GGUF. Any thread. Rounds each block to nearest by its own range: simple and
// correct, for synthetic models and tests; without the importance-weighted search of published files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/formats/dtype.h"

namespace quire {

// Whether quantize() writes the type; other types are only read.
bool can_quantize(DType type);

// values: finite, a multiple of the type's block size; out: dtype_bytes(type, values.size()).
void quantize(DType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace quire
