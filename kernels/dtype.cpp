#include "kernels/dtype.h"

#include <array>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::array<DTypeInfo, 11> kInfos{{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
}};

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (upper(a[i]) != upper(b[i])) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kInfos.at(static_cast<std::size_t>(type));
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kInfos.size(); ++i) {
    if (equal_ignoring_case(kInfos[i].name, name)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::size_t dtype_bytes(DType type, std::int64_t count) {
  const DTypeInfo& info = dtype_info(type);
  QUIRE_CHECK(count % info.block_size == 0, "a count of elements is a multiple of its type's block");
  return static_cast<std::size_t>(count / info.block_size) * info.block_bytes;
}

}  // namespace quire
