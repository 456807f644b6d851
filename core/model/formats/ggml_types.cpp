#include "core/model/formats/ggml_types.h"

#include <array>

namespace quire {

namespace {

// In the order of DType.
constexpr std::array<std::uint32_t, 11> kNumbers{0, 1, 30, 8, 2, 3, 6, 7, 12, 13, 14};

}  // namespace

std::uint32_t ggml_type_number(DType type) {
  return kNumbers.at(static_cast<std::size_t>(type));
}

std::optional<DType> dtype_of_ggml_type(std::uint32_t number) {
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    if (kNumbers[i] == number) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace quire
