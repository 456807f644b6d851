// The operations by their spelling in PTX ("add.s32"), and what helps to define them. Immutable facts; any thread.
// Invariant: each is written from the tables of the PTX ISA, none from the emulator.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <map>
#include <type_traits>

#include "tests/ptx/machine/warp.h"

namespace quire::ptx {

struct Operation {
  Handler run = nullptr;
  Kind kind = Kind::kInteger;
  Flow flow = Flow::kNext;
  Space space = Space::kNone;
  int bytes = 0;
  bool is_signed = false;
  int elements = 1;
  bool has_member_mask = false;  // the last operand
};

using Operations = std::map<std::string, Operation, std::less<>>;

void add_integer_operations(Operations& out);
void add_bit_operations(Operations& out);
void add_float_operations(Operations& out);
void add_conversions(Operations& out);
void add_memory_operations(Operations& out);
void add_warp_operations(Operations& out);

const Operations& operations();

template <std::size_t kBytes>
struct Unsigned;
template <>
struct Unsigned<1> {
  using Type = std::uint8_t;
};
template <>
struct Unsigned<2> {
  using Type = std::uint16_t;
};
template <>
struct Unsigned<4> {
  using Type = std::uint32_t;
};
template <>
struct Unsigned<8> {
  using Type = std::uint64_t;
};

template <class T>
T value_of(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<typename Unsigned<sizeof(T)>::Type>(bits));
}

// A NaN that an operation makes is always the same one.
template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (std::is_same_v<T, bool>) return value ? 1 : 0;
  if constexpr (std::is_same_v<T, float>) {
    if (std::isnan(value)) return 0x7fffffff;
  }
  if constexpr (std::is_same_v<T, double>) {
    if (std::isnan(value)) return 0x7fffffffffffffff;
  }
  return std::bit_cast<typename Unsigned<sizeof(T)>::Type>(value);
}

template <class F>
void for_lanes(std::uint32_t lanes, const F& f) {
  for (; lanes != 0; lanes &= lanes - 1)
    f(static_cast<std::size_t>(std::countr_zero(lanes)));
}

// dest = kF(sources of type T).
template <class T, auto kF>
void unary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  for_lanes(lanes, [&](std::size_t i) { dest[i] = bits_of(kF(value_of<T>(a[i]))); });
}

template <class T, auto kF>
void binary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  const auto& b = warp.lanes_of(in.registers[2]);
  for_lanes(lanes, [&](std::size_t i) { dest[i] = bits_of(kF(value_of<T>(a[i]), value_of<T>(b[i]))); });
}

template <class T, auto kF>
void ternary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  auto& dest = warp.lanes_of(in.registers[0]);
  const auto& a = warp.lanes_of(in.registers[1]);
  const auto& b = warp.lanes_of(in.registers[2]);
  const auto& c = warp.lanes_of(in.registers[3]);
  for_lanes(lanes,
            [&](std::size_t i) { dest[i] = bits_of(kF(value_of<T>(a[i]), value_of<T>(b[i]), value_of<T>(c[i]))); });
}

}  // namespace quire::ptx
