// The numbers of the GGUF format, shared by its reader and its writer, and of tensors' shapes. Immutable facts; any
// thread.
// Source: the GGUF specification and ggml's type list.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/formats/dtype.h"

namespace quire {

inline constexpr std::uint32_t kGgufMagic = 0x46554747;  // "GGUF"

enum GgufValueType : std::uint32_t {
  kGgufU8,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64,
};

std::uint32_t ggml_type_number(DType type);
std::optional<DType> dtype_of_ggml_type(std::uint32_t number);  // nothing for types that Quire does not compute with

// The type itself, or the fallback of published files if rows are no multiple of its block.
DType fitting_type(DType type, std::int64_t cols);

// The product of a shape's dimensions; 1 without any.
constexpr std::int64_t num_elements(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape)
    count *= dim;
  return count;
}

}  // namespace quire
