#include "core/model/formats/gguf/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/check.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_format.h"

namespace quire {

namespace {

constexpr std::size_t kGroup = 32;

void store(std::byte* out, std::uint16_t half) {
  std::memcpy(out, &half, sizeof half);
}

// Stores the scale in the file's precision and returns that value, so that quants are rounded against it.
float store_scale(std::byte* out, float value) {
  const std::uint16_t half = float_to_f16(value);
  store(out, half);
  return f16_to_float(half);
}

int nearest(float value, float scale, int low, int high) {
  if (scale == 0.0F) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(value / scale)), low, high);
}

float of_largest_magnitude(std::span<const float> values) {
  return *std::ranges::max_element(values, {}, [](float v) { return std::fabs(v); });
}

std::byte byte_of(int value) {
  return static_cast<std::byte>(static_cast<std::uint8_t>(value));
}

void quantize_q8_0(const float* x, std::byte* out) {
  const float scale = store_scale(out, std::fabs(of_largest_magnitude({x, kGroup})) / 127.0F);
  for (std::size_t i = 0; i < kGroup; ++i)
    out[2 + i] = byte_of(nearest(x[i], scale, -127, 127));
}

// Q4_0, Q4_1, Q5_0 and Q5_1: low nibbles of elements 0..15, high nibbles of 16..31, fifth bits before them as one word.
void pack_group(const std::array<int, kGroup>& quants, bool five_bits, std::byte* out) {
  if (five_bits) {
    std::uint32_t fifth_bits = 0;
    for (std::size_t i = 0; i < kGroup; ++i)
      fifth_bits |= static_cast<std::uint32_t>((quants[i] >> 4) & 1) << i;
    std::memcpy(out, &fifth_bits, sizeof fifth_bits);
    out += sizeof fifth_bits;
  }
  for (std::size_t i = 0; i < kGroup / 2; ++i)
    out[i] = byte_of((quants[i] & 15) | ((quants[i + 16] & 15) << 4));
}

// value = scale * (quant - zero); the value of the largest magnitude gets the longer end of the range.
void quantize_symmetric(const float* x, int zero, std::byte* out) {
  const float scale = store_scale(out, of_largest_magnitude({x, kGroup}) / static_cast<float>(-zero));
  std::array<int, kGroup> quants{};
  for (std::size_t i = 0; i < kGroup; ++i)
    quants[i] = nearest(x[i], scale, -zero, zero - 1) + zero;
  pack_group(quants, zero == 16, out + 2);
}

// value = scale * quant + minimum.
void quantize_with_minimum(const float* x, int highest, std::byte* out) {
  const auto [low, high] = std::minmax_element(x, x + kGroup);
  const float scale = store_scale(out, (*high - *low) / static_cast<float>(highest));
  const float minimum = store_scale(out + 2, *low);
  std::array<int, kGroup> quants{};
  for (std::size_t i = 0; i < kGroup; ++i)
    quants[i] = nearest(x[i] - minimum, scale, 0, highest);
  pack_group(quants, highest == 31, out + 4);
}

// Eight 6-bit scales and eight 6-bit minima in twelve bytes: four of each whole, the others split.
void pack_k_scales(const std::array<int, 8>& scales, const std::array<int, 8>& minima, std::byte* out) {
  for (std::size_t i = 0; i < 4; ++i) {
    out[i] = byte_of(scales[i] | ((scales[i + 4] >> 4) << 6));
    out[i + 4] = byte_of(minima[i] | ((minima[i + 4] >> 4) << 6));
    out[i + 8] = byte_of((scales[i + 4] & 15) | ((minima[i + 4] & 15) << 4));
  }
}

// Q4_K and Q5_K: value = d * scale * quant - dmin * minimum, per group of 32 in a block of 256.
void quantize_k45(const float* x, bool five_bits, std::byte* out) {
  const int highest = five_bits ? 31 : 15;
  std::array<float, 8> scales{};
  std::array<float, 8> minima{};
  for (std::size_t g = 0; g < 8; ++g) {
    const auto [low, high] = std::minmax_element(x + g * kGroup, x + (g + 1) * kGroup);
    minima[g] = std::max(0.0F, -*low);
    scales[g] = std::max(0.0F, *high + minima[g]) / static_cast<float>(highest);
  }
  const float d = store_scale(out, std::ranges::max(scales) / 63.0F);
  const float dmin = store_scale(out + 2, std::ranges::max(minima) / 63.0F);
  std::array<int, 8> scale_quants{};
  std::array<int, 8> minimum_quants{};
  for (std::size_t g = 0; g < 8; ++g) {
    scale_quants[g] = nearest(scales[g], d, 0, 63);
    minimum_quants[g] = nearest(minima[g], dmin, 0, 63);
  }
  pack_k_scales(scale_quants, minimum_quants, out + 4);
  std::byte* high_bits = out + 16;
  std::byte* nibbles = five_bits ? out + 48 : out + 16;
  std::fill(high_bits, nibbles + 128, std::byte{0});
  for (std::size_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(scale_quants[g]);
    const float minimum = dmin * static_cast<float>(minimum_quants[g]);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const int quant = nearest(x[g * kGroup + i] + minimum, scale, 0, highest);
      nibbles[g / 2 * kGroup + i] |= byte_of((quant & 15) << (g % 2 * 4));
      if (five_bits) high_bits[i] |= byte_of((quant >> 4) << g);
    }
  }
}

// Q6_K: value = d * scale * (quant - 32), per group of 16 in a block of 256.
void quantize_q6_k(const float* x, std::byte* out) {
  constexpr std::size_t kSmallGroup = 16;
  std::array<float, 16> scales{};
  for (std::size_t g = 0; g < 16; ++g)
    scales[g] = of_largest_magnitude({x + g * kSmallGroup, kSmallGroup}) / -32.0F;
  std::byte* low = out;
  std::byte* high = out + 128;
  std::byte* scale_bytes = out + 192;
  const float d = store_scale(out + 208, std::fabs(of_largest_magnitude(scales)) / 127.0F);
  std::fill(low, scale_bytes, std::byte{0});
  for (std::size_t g = 0; g < 16; ++g) {
    const int scale_quant = nearest(scales[g], d, -127, 127);
    scale_bytes[g] = byte_of(scale_quant);
    const float scale = d * static_cast<float>(scale_quant);
    for (std::size_t i = 0; i < kSmallGroup; ++i) {
      const std::size_t element = g * kSmallGroup + i;
      const std::size_t half = element / 128;
      const std::size_t part = element % 128 / 32;
      const std::size_t column = element % 32;
      const int quant = nearest(x[element], scale, -32, 31) + 32;
      low[64 * half + 32 * (part % 2) + column] |= byte_of((quant & 15) << (part / 2 * 4));
      high[32 * half + column] |= byte_of((quant >> 4) << (2 * part));
    }
  }
}

// The code whose value times scale is nearest.
int nearest_code(float value, float scale, const CodeValues& values) {
  if (scale == 0.0F) return 0;
  const auto distance = [&](std::int8_t meaning) { return std::fabs(value / scale - static_cast<float>(meaning)); };
  return static_cast<int>(std::ranges::min_element(values.of, {}, distance) - std::begin(values.of));
}

void pack_nearest_codes(const float* x, float scale, CodeTable table, std::byte* out) {
  std::array<int, kGroup> codes{};
  for (std::size_t i = 0; i < kGroup; ++i)
    codes[i] = nearest_code(x[i], scale, code_values(table));
  pack_group(codes, false, out);
}

void quantize_iq4_nl(const float* x, std::byte* out) {
  const float scale = store_scale(out, of_largest_magnitude({x, kGroup}) / -127.0F);
  pack_nearest_codes(x, scale, CodeTable::kNonLinear, out + 2);
}

// IQ4_XS: IQ4_NL with 6-bit multipliers of d, minus 32, per group of 32 in a block of 256.
void quantize_iq4_xs(const float* x, std::byte* out) {
  std::array<float, 8> scales{};
  for (std::size_t g = 0; g < 8; ++g)
    scales[g] = of_largest_magnitude({x + g * kGroup, kGroup}) / -127.0F;
  const float d = store_scale(out, std::fabs(of_largest_magnitude(scales)) / 31.0F);
  std::uint16_t high = 0;
  std::fill(out + 2, out + 8, std::byte{0});
  for (std::size_t g = 0; g < 8; ++g) {
    const int multiplier = nearest(scales[g], d, -32, 31);
    const int stored = multiplier + 32;
    high = static_cast<std::uint16_t>(high | (stored >> 4) << (2 * g));
    out[4 + g / 2] |= byte_of((stored & 15) << (g % 2 * 4));
    pack_nearest_codes(x + g * kGroup, d * static_cast<float>(multiplier), CodeTable::kNonLinear, out + 8 + 16 * g);
  }
  store(out + 2, high);
}

// MXFP4: the largest magnitude gets the exponent of 4 or 6, so that clamping never costs more than rounding.
void quantize_mxfp4(const float* x, std::byte* out) {
  const float largest = std::fabs(of_largest_magnitude({x, kGroup}));
  const int exponent = largest > 0.0F ? std::ilogb(largest) - 2 : -127;
  out[0] = byte_of(std::clamp(exponent + 127, 0, 253));
  pack_nearest_codes(x, half_of_e8m0(std::to_integer<std::uint8_t>(out[0])), CodeTable::kFp4, out + 1);
}

// Two bits of element i of a block of 256: four runs of 32 share 32 bytes.
void put_two_bits(std::byte* out, std::size_t i, int bits) {
  out[i / 128 * 32 + i % 32] |= byte_of(bits << (i % 128 / 32 * 2));
}

// Q3_K: value = d * scale * (quant - 4), 6-bit scales less 32, per group of 16 in a block of 256.
void quantize_q3_k(const float* x, std::byte* out) {
  std::array<float, 16> scales{};
  for (std::size_t g = 0; g < 16; ++g)
    scales[g] = of_largest_magnitude({x + 16 * g, 16}) / -4.0F;
  std::fill(out, out + 108, std::byte{0});
  std::byte* packed = out + 96;
  const float d = store_scale(out + 108, std::fabs(of_largest_magnitude(scales)) / 31.0F);
  for (std::size_t g = 0; g < 16; ++g) {
    const int multiplier = nearest(scales[g], d, -32, 31);
    const int stored = multiplier + 32;
    packed[g % 8] |= byte_of((stored & 15) << (g / 8 * 4));
    packed[8 + g % 4] |= byte_of((stored >> 4) << (g / 4 * 2));
    for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const int quant = nearest(x[i], d * static_cast<float>(multiplier), -4, 3) + 4;
      put_two_bits(out + 32, i, quant & 3);
      out[i % 32] |= byte_of((quant >> 2) << (i / 32));
    }
  }
}

// Q2_K: value = d * scale * quant - dmin * minimum, 4-bit scales and minima, per group of 16 in a block of 256.
void quantize_q2_k(const float* x, std::byte* out) {
  std::array<float, 16> scales{};
  std::array<float, 16> minima{};
  for (std::size_t g = 0; g < 16; ++g) {
    const auto [low, high] = std::minmax_element(x + 16 * g, x + 16 * g + 16);
    minima[g] = std::max(0.0F, -*low);
    scales[g] = std::max(0.0F, *high + minima[g]) / 3.0F;
  }
  const float d = store_scale(out + 80, std::ranges::max(scales) / 15.0F);
  const float dmin = store_scale(out + 82, std::ranges::max(minima) / 15.0F);
  std::fill(out, out + 80, std::byte{0});
  for (std::size_t g = 0; g < 16; ++g) {
    const int scale = nearest(scales[g], d, 0, 15);
    const int minimum = nearest(minima[g], dmin, 0, 15);
    out[g] = byte_of(scale | (minimum << 4));
    for (std::size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const float above = x[i] + dmin * static_cast<float>(minimum);
      put_two_bits(out + 16, i, nearest(above, d * static_cast<float>(scale), 0, 3));
    }
  }
}

void quantize_block(DType type, const float* x, std::byte* out) {
  switch (type) {
    case DType::kF32: std::memcpy(out, x, sizeof *x); return;
    case DType::kF16: return store(out, float_to_f16(*x));
    case DType::kBF16: return store(out, float_to_bf16(*x));
    case DType::kQ8_0: return quantize_q8_0(x, out);
    case DType::kQ4_0: return quantize_symmetric(x, 8, out);
    case DType::kQ5_0: return quantize_symmetric(x, 16, out);
    case DType::kQ4_1: return quantize_with_minimum(x, 15, out);
    case DType::kQ5_1: return quantize_with_minimum(x, 31, out);
    case DType::kQ4_K: return quantize_k45(x, false, out);
    case DType::kQ5_K: return quantize_k45(x, true, out);
    case DType::kQ6_K: return quantize_q6_k(x, out);
    case DType::kIQ4_NL: return quantize_iq4_nl(x, out);
    case DType::kIQ4_XS: return quantize_iq4_xs(x, out);
    case DType::kQ3_K: return quantize_q3_k(x, out);
    case DType::kQ2_K: return quantize_q2_k(x, out);
    case DType::kMXFP4: return quantize_mxfp4(x, out);
    default: QUIRE_CHECK(false, "a type that is only read");
  }
}

}  // namespace

bool can_quantize(DType type) {
  return type <= DType::kMXFP4;
}

void quantize(DType type, std::span<const float> values, std::span<std::byte> out) {
  const DTypeInfo& info = dtype_info(type);
  QUIRE_CHECK(out.size() == dtype_bytes(type, std::ssize(values)), "the output has the size of the encoded values");
  const auto block = static_cast<std::size_t>(info.block_size);
  for (std::size_t i = 0; i < values.size() / block; ++i) {
    quantize_block(type, values.data() + i * block, out.data() + i * info.block_bytes);
  }
}

}  // namespace quire
