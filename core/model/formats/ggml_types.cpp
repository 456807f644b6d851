#include "core/model/formats/ggml_types.h"

#include <array>

namespace quire {

namespace {

// Numbers in the order of DType; kNone: no file has the type.
constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::array<std::uint32_t, kNumWeightTypes> kNumbers{0,  1,  30, 8,  2,  3,  6,     7,     12,   13, 14,
                                                              20, 23, 11, 10, 39, 40, 18,    21,    16,   17, 22,
                                                              19, 29, 34, 35, 41, 42, kNone, kNone, kNone};

}  // namespace

std::uint32_t ggml_type_number(DType type) {
  return kNumbers.at(static_cast<std::size_t>(type));
}

std::optional<DType> dtype_of_ggml_type(std::uint32_t number) {
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    if (kNumbers[i] == number && number != kNone) return static_cast<DType>(i);
  }
  return std::nullopt;
}

DType fitting_type(DType type, std::int64_t cols) {
  while (cols % dtype_info(type).block_size != 0) {
    switch (type) {
      case DType::kQ4_K: type = DType::kQ5_0; break;
      case DType::kQ5_K: type = DType::kQ5_1; break;
      case DType::kQ6_K: type = DType::kQ8_0; break;
      case DType::kIQ4_XS:
      case DType::kQ3_K:
      case DType::kQ2_K: type = DType::kIQ4_NL; break;
      default: type = DType::kF16; break;
    }
  }
  return type;
}

}  // namespace quire
