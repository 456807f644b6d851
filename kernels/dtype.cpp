#include "kernels/dtype.h"

#include <array>
#include <cctype>
#include <cstring>

#include "kernels/check.h"
#include "kernels/half.h"
#include "kernels/quant_blocks.h"

namespace quire {
namespace {

constexpr std::array<DTypeInfo, 11> kTypes = {{
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

// The multiplications are written in ggml's order, so that decoded values are equal to the bit.
void decode_group(DType type, const QuantGroup& group, float* out) {
  const float d = f16_to_float(group.scale_f16);
  const float m = f16_to_float(group.minimum_f16);
  const int zero = quant_zero(type);
  for (int i = 0; i < kSubBlock; ++i) {
    const int quant = group.quants[static_cast<std::size_t>(i)] - zero;
    const auto q = static_cast<float>(quant);
    switch (type) {
      case DType::kQ4_1:
      case DType::kQ5_1: out[i] = q * d + m; break;
      case DType::kQ4_K:
      case DType::kQ5_K:
        out[i] = d * static_cast<float>(group.sub_scale[0]) * q - m * static_cast<float>(group.sub_minimum);
        break;
      case DType::kQ6_K: out[i] = d * static_cast<float>(group.sub_scale[i < 16 ? 0 : 1]) * q; break;
      default: out[i] = q * d;
    }
  }
}

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  const auto index = static_cast<std::size_t>(type);
  QUIRE_CHECK(index < kTypes.size(), "unknown element type");
  return kTypes[index];
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    const std::string_view known = kTypes[i].name;
    if (known.size() != name.size()) continue;
    bool equal = true;
    for (std::size_t j = 0; j < name.size(); ++j) {
      equal = equal && std::toupper(static_cast<unsigned char>(name[j])) == known[j];
    }
    if (equal) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::size_t dtype_bytes(DType type, std::int64_t count) {
  const DTypeInfo& info = dtype_info(type);
  QUIRE_CHECK(count >= 0 && count % info.block_size == 0, "element count is not a multiple of the block size");
  return static_cast<std::size_t>(count / info.block_size) * info.block_bytes;
}

void dequantize(DType type, const std::byte* source, std::int64_t count, float* out) {
  const DTypeInfo& info = dtype_info(type);
  QUIRE_CHECK(count >= 0 && count % info.block_size == 0, "element count is not a multiple of the block size");
  if (type == DType::kF32) {
    std::memcpy(out, source, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  if (type == DType::kF16 || type == DType::kBF16) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint16_t half = load_u16(source + 2 * i);
      out[i] = type == DType::kF16 ? f16_to_float(half) : bf16_to_float(half);
    }
    return;
  }
  QuantGroup group;
  for (std::int64_t i = 0; i < count; i += info.block_size, source += info.block_bytes) {
    for (int g = 0; g < info.block_size / kSubBlock; ++g) {
      split_quant_group(type, source, g, group);
      decode_group(type, group, out + i + g * kSubBlock);
    }
  }
}

}  // namespace quire
