#include <algorithm>

#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

// Arithmetic wraps around.
template <class T>
T wrapped(std::uint64_t value) {
  return static_cast<T>(value);
}

template <class T>
constexpr int kWidth = static_cast<int>(8 * sizeof(T));

template <class T>
T shift_left(T value, std::uint64_t by) {
  return by >= kWidth<T> ? T{0} : wrapped<T>(static_cast<std::uint64_t>(value) << by);
}

// Signed types shift in copies of the sign.
template <class T>
T shift_right(T value, std::uint64_t by) {
  const int most = std::is_signed_v<T> ? kWidth<T> - 1 : kWidth<T>;
  if (by >= static_cast<std::uint64_t>(most)) {
    if constexpr (std::is_signed_v<T>) return static_cast<T>(value < 0 ? -1 : 0);
    return T{0};
  }
  return static_cast<T>(value >> by);
}

// The amount is a 32-bit register for every type.
template <class T, auto kF>
void shift(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  const auto& by = warp.lanes_of(in.registers[2]);
  for_lanes(lanes, [&](std::size_t i) { dest[i] = bits_of(kF(value_of<T>(a[i]), by[i] & 0xffffffffU)); });
}

// The product of two T, twice as wide.
template <class T, class Wide>
void multiply_wide(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  const auto& b = warp.lanes_of(in.registers[2]);
  for_lanes(lanes, [&](std::size_t i) {
    dest[i] = bits_of(static_cast<Wide>(Wide{value_of<T>(a[i])} * Wide{value_of<T>(b[i])}));
  });
}

__extension__ using Wide = __int128;

template <class T>
T high_product(T a, T b) {
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> kWidth<T>);
}

// Division by zero, and of the smallest number by -1, is unspecified in PTX.
template <class T>
T quotient(T a, T b) {
  if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)))
    return b == 0 ? static_cast<T>(-1) : wrapped<T>(0 - std::uint64_t(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return b == 0 ? a : T{0};
  return static_cast<T>(a % b);
}

template <class T>
void add_arithmetic(Operations& out, const std::string& type) {
  out["add." + type] = {&binary<T, [](T a, T b) { return wrapped<T>(std::uint64_t(a) + std::uint64_t(b)); }>};
  out["sub." + type] = {&binary<T, [](T a, T b) { return wrapped<T>(std::uint64_t(a) - std::uint64_t(b)); }>};
  out["mul.lo." + type] = {&binary<T, [](T a, T b) { return wrapped<T>(std::uint64_t(a) * std::uint64_t(b)); }>};
  out["mul.hi." + type] = {&binary<T, [](T a, T b) { return high_product<T>(a, b); }>};
  out["mad.lo." + type] = {
      &ternary<T, [](T a, T b, T c) { return wrapped<T>(std::uint64_t(a) * std::uint64_t(b) + std::uint64_t(c)); }>};
  out["div." + type] = {&binary<T, [](T a, T b) { return quotient<T>(a, b); }>};
  out["rem." + type] = {&binary<T, [](T a, T b) { return remainder<T>(a, b); }>};
  out["min." + type] = {&binary<T, [](T a, T b) { return std::min(a, b); }>};
  out["max." + type] = {&binary<T, [](T a, T b) { return std::max(a, b); }>};
  out["shr." + type] = {&shift<T, [](T a, std::uint64_t by) { return shift_right<T>(a, by); }>};
  if constexpr (std::is_signed_v<T>) {
    out["neg." + type] = {&unary<T, [](T a) { return wrapped<T>(0 - std::uint64_t(a)); }>};
    out["abs." + type] = {&unary<T, [](T a) { return a < 0 ? wrapped<T>(0 - std::uint64_t(a)) : a; }>};
  }
}

template <class T>
void add_comparisons(Operations& out, const std::string& type) {
  out["setp.eq." + type] = {&binary<T, [](T a, T b) { return a == b; }>, Kind::kSelect};
  out["setp.ne." + type] = {&binary<T, [](T a, T b) { return a != b; }>, Kind::kSelect};
  out["setp.lt." + type] = {&binary<T, [](T a, T b) { return a < b; }>, Kind::kSelect};
  out["setp.le." + type] = {&binary<T, [](T a, T b) { return a <= b; }>, Kind::kSelect};
  out["setp.gt." + type] = {&binary<T, [](T a, T b) { return b < a; }>, Kind::kSelect};
  out["setp.ge." + type] = {&binary<T, [](T a, T b) { return a >= b; }>, Kind::kSelect};
}

// Operations on bits of any type.
template <class T>
void add_bitwise(Operations& out, const std::string& type) {
  out["and." + type] = {&binary<T, [](T a, T b) { return static_cast<T>(a & b); }>};
  out["or." + type] = {&binary<T, [](T a, T b) { return static_cast<T>(a | b); }>};
  out["xor." + type] = {&binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>};
  out["not." + type] = {&unary<T, [](T a) { return static_cast<T>(~a); }>};
  out["shl." + type] = {&shift<T, [](T a, std::uint64_t by) { return shift_left<T>(a, by); }>};
  out["shr." + type] = {&shift<T, [](T a, std::uint64_t by) { return shift_right<T>(a, by); }>};
}

template <class T>
void select(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  const auto& b = warp.lanes_of(in.registers[2]);
  const auto& chooses = warp.lanes_of(in.registers[3]);
  for_lanes(lanes, [&](std::size_t i) { dest[i] = bits_of(value_of<T>(chooses[i] != 0 ? a[i] : b[i])); });
}

template <class T>
void move(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  for_lanes(lanes, [&](std::size_t i) { dest[i] = value_of<T>(a[i]); });
}

// Elements of a vector, the first in the lowest bits.
template <class T>
void pack(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::size_t elements = in.registers.size() - 1;
  const std::size_t width = 8 * sizeof(T) / elements;
  for_lanes(lanes, [&](std::size_t i) {
    std::uint64_t bits = 0;
    for (std::size_t e = 0; e < elements; ++e)
      bits |= (warp.lanes_of(in.registers[1 + e])[i] & ((1ULL << width) - 1)) << (width * e);
    warp.lanes_of(in.registers[0])[i] = bits;
  });
}

template <class T>
void unpack(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::size_t elements = in.registers.size() - 1;
  const std::size_t width = 8 * sizeof(T) / elements;
  for_lanes(lanes, [&](std::size_t i) {
    const std::uint64_t bits = warp.lanes_of(in.registers[elements])[i];
    for (std::size_t e = 0; e < elements; ++e)
      warp.lanes_of(in.registers[e])[i] = (bits >> (width * e)) & ((1ULL << width) - 1);
  });
}

template <class T>
void add_moves(Operations& out, const std::string& width) {
  for (const char* type : {"b", "u", "s", "f"}) {
    out["mov." + (type + width)] = {&move<T>, Kind::kMove};
    out["selp." + (type + width)] = {&select<T>, Kind::kSelect};
  }
  if constexpr (sizeof(T) > 2) {
    out["pack.b" + width] = {&pack<T>, Kind::kMove};
    out["unpack.b" + width] = {&unpack<T>, Kind::kMove};
  }
}

void add_predicates(Operations& out) {
  using Bits = std::uint64_t;  // 0 or 1
  out["and.pred"] = {&binary<Bits, [](Bits a, Bits b) { return a & b; }>, Kind::kSelect};
  out["or.pred"] = {&binary<Bits, [](Bits a, Bits b) { return a | b; }>, Kind::kSelect};
  out["xor.pred"] = {&binary<Bits, [](Bits a, Bits b) { return a ^ b; }>, Kind::kSelect};
  out["not.pred"] = {&unary<Bits, [](Bits a) { return a ^ 1U; }>, Kind::kSelect};
  out["mov.pred"] = {&unary<Bits, [](Bits a) { return Bits{a != 0}; }>, Kind::kSelect};
}

}  // namespace

void add_integer_operations(Operations& out) {
  add_arithmetic<std::uint16_t>(out, "u16");
  add_arithmetic<std::int16_t>(out, "s16");
  add_arithmetic<std::uint32_t>(out, "u32");
  add_arithmetic<std::int32_t>(out, "s32");
  add_arithmetic<std::uint64_t>(out, "u64");
  add_arithmetic<std::int64_t>(out, "s64");
  out["mul.wide.u16"] = {&multiply_wide<std::uint16_t, std::uint32_t>};
  out["mul.wide.s16"] = {&multiply_wide<std::int16_t, std::int32_t>};
  out["mul.wide.u32"] = {&multiply_wide<std::uint32_t, std::uint64_t>};
  out["mul.wide.s32"] = {&multiply_wide<std::int32_t, std::int64_t>};
  add_comparisons<std::uint16_t>(out, "u16");
  add_comparisons<std::int16_t>(out, "s16");
  add_comparisons<std::uint32_t>(out, "u32");
  add_comparisons<std::int32_t>(out, "s32");
  add_comparisons<std::uint64_t>(out, "u64");
  add_comparisons<std::int64_t>(out, "s64");
  add_comparisons<std::uint16_t>(out, "b16");
  add_comparisons<std::uint32_t>(out, "b32");
  add_comparisons<std::uint64_t>(out, "b64");
  add_bitwise<std::uint16_t>(out, "b16");
  add_bitwise<std::uint32_t>(out, "b32");
  add_bitwise<std::uint64_t>(out, "b64");
  add_moves<std::uint16_t>(out, "16");
  add_moves<std::uint32_t>(out, "32");
  add_moves<std::uint64_t>(out, "64");
  add_predicates(out);
}

}  // namespace quire::ptx
