#include "kernels/formats/dtype.h"

#include <array>
#include <cctype>
#include <cstring>

#include "kernels/check.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_format.h"
#include "kernels/formats/quant_blocks.h"

namespace quire {
namespace {

constexpr std::array<DTypeInfo, kNumWeightTypes> kTypes = {{
    {"F32", 1, 4},        {"F16", 1, 2},      {"BF16", 1, 2},       {"Q8_0", 32, 34},     {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},     {"Q5_0", 32, 22},   {"Q5_1", 32, 24},     {"Q4_K", 256, 144},   {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},   {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"Q3_K", 256, 110},   {"Q2_K", 256, 84},
    {"MXFP4", 32, 17},    {"NVFP4", 64, 36},  {"IQ3_XXS", 256, 98}, {"IQ3_S", 256, 110},  {"IQ2_XXS", 256, 66},
    {"IQ2_XS", 256, 74},  {"IQ2_S", 256, 82}, {"IQ1_S", 256, 50},   {"IQ1_M", 256, 56},   {"TQ1_0", 256, 54},
    {"TQ2_0", 256, 66},   {"Q1_0", 128, 18},  {"Q2_0", 64, 18},     {"INT4_G32", 32, 21}, {"INT4_G128", 128, 84},
    {"FP8_E4M3", 32, 36},
}};

// Factor and subtrahend of the codes of a block, for each 16.
struct GroupScales {
  float scale[2];
  float minimum[2] = {0.0f, 0.0f};
};

GroupScales group_scales(ScaleForm form, const QuantGroup& group, float unit) {
  const float d = f16_to_float(group.scale_f16);
  const float m = f16_to_float(group.minimum_f16);
  const auto sub = [&](std::size_t half) { return static_cast<float>(group.sub_scale[half]); };
  const auto bits = [&](std::size_t half) { return static_cast<std::uint8_t>(group.sub_scale[half]); };
  switch (form) {
    case ScaleForm::kHalfMinimum: return {{d, d}, {-m, -m}};
    case ScaleForm::kPair8: {
      const float minimum = m * static_cast<float>(group.sub_minimum);
      return {{d * sub(0), d * sub(0)}, {minimum, minimum}};
    }
    case ScaleForm::kSigned: return {{d * unit * sub(0), d * unit * sub(0)}};
    case ScaleForm::kSignedHalves: return {{d * unit * sub(0), d * unit * sub(1)}};
    case ScaleForm::kNibbleHalves:
      return {{d * static_cast<float>(bits(0) & 15), d * static_cast<float>(bits(1) & 15)},
              {m * static_cast<float>(bits(0) >> 4), m * static_cast<float>(bits(1) >> 4)}};
    case ScaleForm::kPower: return {{half_of_e8m0(bits(0)), half_of_e8m0(bits(0))}};
    case ScaleForm::kUe4m3Halves: return {{half_of_ue4m3(bits(0)), half_of_ue4m3(bits(1))}};
    case ScaleForm::kFloatZero:
    case ScaleForm::kFloat8: return {{group.scale_f32, group.scale_f32}};
    default: return {{d, d}};
  }
}

// The multiplications are written in ggml's order, so that decoded values are equal to the bit.
void decode_group(DType type, const QuantGroup& group, float* out) {
  const PackedFormat format = packed_format(type);
  const GroupScales scales = group_scales(format.scales, group, format.unit);
  const CodeValues values = code_values(format.table);
  const int zero = format.scales == ScaleForm::kFloatZero ? group.sub_minimum : format.zero;
  for (std::size_t i = 0; i < kSubBlock; ++i) {
    const std::uint8_t code = group.quants[i];
    const int meaning = format.table == CodeTable::kLinear ? code - zero : values.of[code];
    const float value = format.scales == ScaleForm::kFloat8 ? e4m3_to_float(code) : static_cast<float>(meaning);
    out[i] = scales.scale[i / 16] * value - scales.minimum[i / 16];
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
