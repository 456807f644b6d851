// Scalar conversions between f32 and the 16-bit float formats, exact to IEEE 754 with round-half-even. Any thread.
// Static functions on purpose: ISA level files include this header and must export no weak symbol.
#pragma once

#include <cstdint>
#include <cstring>

namespace quire {

[[maybe_unused]] static float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

[[maybe_unused]] static std::uint32_t float_to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

[[maybe_unused]] static float bf16_to_float(std::uint16_t half) {
  return bits_to_float(static_cast<std::uint32_t>(half) << 16);
}

[[maybe_unused]] static std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

[[maybe_unused]] static float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // The exponent is rebased by a multiplication, which also normalises subnormals.
  const float scaled = bits_to_float(magnitude << 13) * bits_to_float(0x77800000u);  // * 2^112
  return bits_to_float(sign | float_to_bits(scaled));
}

[[maybe_unused]] static std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = float_to_bits(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns the mantissa and rounds it
    const float aligned = bits_to_float(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (float_to_bits(aligned) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// E4M3 as OCP's FP8 specification defines it: no infinity, 0x7f is the NaN.
[[maybe_unused]] static float e4m3_to_float(std::uint8_t byte) {
  const std::uint32_t sign = static_cast<std::uint32_t>(byte & 0x80u) << 24;
  const std::uint32_t magnitude = byte & 0x7fu;
  if (magnitude == 0x7f) return bits_to_float(sign | 0x7fc00000u);
  const float scaled = bits_to_float(magnitude << 20) * bits_to_float(0x7b800000u);  // * 2^120
  return bits_to_float(sign | float_to_bits(scaled));
}

// Half of a scale of NVFP4, whose table holds twice the values; 0x7f counts as zero, as in ggml.
[[maybe_unused]] static float half_of_ue4m3(std::uint8_t byte) {
  return (byte & 0x7fu) == 0x7f ? 0.0f : 0.5f * e4m3_to_float(byte & 0x7fu);
}

// Half of a scale of MXFP4, 2^(byte - 128), for the same reason.
[[maybe_unused]] static float half_of_e8m0(std::uint8_t byte) {
  return bits_to_float(byte < 2 ? 0x00200000u << byte : (byte - 1u) << 23);
}

[[maybe_unused]] static std::uint16_t load_u16(const void* source) {
  std::uint16_t value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

}  // namespace quire
