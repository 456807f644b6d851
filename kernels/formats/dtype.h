// The element types of tensors, with their block sizes as GGUF defines them. Immutable facts; any thread.
// Source: ggml's GGUF specification and its block definitions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/formats/element_type.h"

namespace quire {

struct DTypeInfo {
  std::string_view name;    // as users write it: "Q4_K"
  std::int64_t block_size;  // elements per block
  std::size_t block_bytes;  // bytes per block
};

const DTypeInfo& dtype_info(DType type);
std::optional<DType> parse_dtype(std::string_view name);  // case-insensitive

// Bytes of `count` elements; count must be a multiple of the block size.
std::size_t dtype_bytes(DType type, std::int64_t count);

// Decodes `count` elements (a multiple of the block size) to f32, exactly as the format defines. Scalar; for loading,
// embedding rows and references, not for matmul.
void dequantize(DType type, const std::byte* source, std::int64_t count, float* out);

}  // namespace quire
