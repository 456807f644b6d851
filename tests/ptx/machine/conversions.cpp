#include <algorithm>
#include <limits>

#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

// The exact value of a 16-bit float with kMantissa bits of mantissa.
template <int kMantissa>
float widened(std::uint16_t bits) {
  constexpr int kExponent = 15 - kMantissa;
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  const int exponent = bits >> kMantissa & ((1 << kExponent) - 1);
  const int mantissa = bits & ((1 << kMantissa) - 1);
  float magnitude;
  if (exponent == (1 << kExponent) - 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + (1 << kMantissa)), exponent - kBias - kMantissa);
  }
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

// Rounds to the nearest, ties to even; too large values become infinite.
template <int kMantissa>
std::uint16_t narrowed(float value) {
  constexpr int kExponent = 15 - kMantissa;
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  const double magnitude = std::fabs(static_cast<double>(value));
  constexpr auto kInfinity = static_cast<std::uint16_t>(((1 << kExponent) - 1) << kMantissa);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kInfinity);
  int exponent = 0;
  std::frexp(magnitude, &exponent);                                // magnitude = [0.5, 1) * 2^exponent
  const int unit = std::max(exponent - 1, 1 - kBias) - kMantissa;  // exponent of the last place
  const auto steps = static_cast<std::int64_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // Rounding up to the next power of two carries into the exponent.
  const std::int64_t bits = magnitude == 0.0 ? 0 : (std::int64_t{unit + kMantissa + kBias - 1} << kMantissa) + steps;
  return static_cast<std::uint16_t>(sign | std::min<std::int64_t>(bits, kInfinity));
}

template <class From, class To, auto kF>
void convert(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  for_lanes(lanes, [&](std::size_t i) {
    const To value = kF(value_of<From>(a[i]));
    if constexpr (std::is_integral_v<To> && std::is_signed_v<To>) {
      dest[i] = static_cast<std::uint64_t>(std::int64_t{value}) & in.dest_mask;  // a wider register gets the sign
    } else {
      dest[i] = bits_of(value);
    }
  });
}

// Rounds two floats, the first one into the high half.
template <int kMantissa>
void narrow_two(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& high = warp.lanes_of(in.registers[1]);
  const auto& low = warp.lanes_of(in.registers[2]);
  for_lanes(lanes, [&](std::size_t i) {
    dest[i] = std::uint64_t{narrowed<kMantissa>(value_of<float>(low[i]))} |
              std::uint64_t{narrowed<kMantissa>(value_of<float>(high[i]))} << 16;
  });
}

// Rounds towards zero; a value out of range becomes the nearest integer, a NaN zero.
template <class To>
To truncated(float value) {
  if (std::isnan(value)) return 0;
  const double whole = std::trunc(static_cast<double>(value));
  if (whole <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (whole >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(whole);
}
template <class To>
To rounded(float value) {
  return truncated<To>(static_cast<float>(std::nearbyint(value)));
}

template <class From, class To>
void add_between(Operations& out, const std::string& from, const std::string& to) {
  out["cvt." + to + "." + from] = {&convert<From, To, [](From a) { return static_cast<To>(a); }>, Kind::kInteger};
}

template <class From>
void add_from(Operations& out, const std::string& from) {
  add_between<From, std::uint8_t>(out, from, "u8");
  add_between<From, std::int8_t>(out, from, "s8");
  add_between<From, std::uint16_t>(out, from, "u16");
  add_between<From, std::int16_t>(out, from, "s16");
  add_between<From, std::uint32_t>(out, from, "u32");
  add_between<From, std::int32_t>(out, from, "s32");
  add_between<From, std::uint64_t>(out, from, "u64");
  add_between<From, std::int64_t>(out, from, "s64");
  out["cvt.rn.f32." + from] = {&convert<From, float, [](From a) { return static_cast<float>(a); }>, Kind::kConvert};
}

template <class To>
void add_from_float(Operations& out, const std::string& to) {
  out["cvt.rzi." + to + ".f32"] = {&convert<float, To, [](float a) { return truncated<To>(a); }>, Kind::kConvert};
  out["cvt.rni." + to + ".f32"] = {&convert<float, To, [](float a) { return rounded<To>(a); }>, Kind::kConvert};
}

}  // namespace

void add_conversions(Operations& out) {
  using Half = std::uint16_t;
  add_from<std::uint8_t>(out, "u8");
  add_from<std::int8_t>(out, "s8");
  add_from<std::uint16_t>(out, "u16");
  add_from<std::int16_t>(out, "s16");
  add_from<std::uint32_t>(out, "u32");
  add_from<std::int32_t>(out, "s32");
  add_from<std::uint64_t>(out, "u64");
  add_from<std::int64_t>(out, "s64");
  add_from_float<std::int32_t>(out, "s32");
  add_from_float<std::uint32_t>(out, "u32");
  out["cvt.f64.f32"] = {&convert<float, double, [](float a) { return static_cast<double>(a); }>, Kind::kConvert};
  out["cvt.f32.f16"] = {&convert<Half, float, [](Half a) { return widened<10>(a); }>, Kind::kConvert};
  out["cvt.f32.bf16"] = {&convert<Half, float, [](Half a) { return widened<7>(a); }>, Kind::kConvert};
  out["cvt.rn.f16.f32"] = {&convert<float, Half, [](float a) { return narrowed<10>(a); }>, Kind::kConvert};
  out["cvt.rn.f16x2.f32"] = {&narrow_two<10>, Kind::kConvert};
  out["cvt.rn.bf16x2.f32"] = {&narrow_two<7>, Kind::kConvert};
  out["cvt.rn.bf16.f32"] = {&convert<float, Half, [](float a) { return narrowed<7>(a); }>, Kind::kConvert};
}

}  // namespace quire::ptx
