#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

// Bytes of {b, a} by nibbles: three bits choose one, the fourth repeats its sign.
std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t both = (std::uint64_t{b} << 32) | a;
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t selector = (selectors >> (4 * i)) & 15U;
    std::uint32_t byte = static_cast<std::uint32_t>(both >> (8 * (selector & 7U))) & 255U;
    if ((selector & 8U) != 0) byte = (byte & 128U) != 0 ? 255U : 0U;
    out |= byte << (8 * i);
  }
  return out;
}

// Computes any function of three bits, given by its table.
void logic3(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](std::size_t i) {
    const auto a = warp.lanes_of(in.registers[1])[i];
    const auto b = warp.lanes_of(in.registers[2])[i];
    const auto c = warp.lanes_of(in.registers[3])[i];
    const auto table = warp.lanes_of(in.registers[4])[i];
    std::uint64_t out = 0;
    for (unsigned bit = 0; bit < 32; ++bit) {
      const std::uint64_t place = (a >> bit & 1U) << 2 | (b >> bit & 1U) << 1 | (c >> bit & 1U);
      out |= (table >> place & 1U) << bit;
    }
    warp.lanes_of(in.registers[0])[i] = out;
  });
}

// A field of `length` bits from `begin` on; of signed types its highest bit, or the source's, fills what lies above.
template <class T>
T extract(T value, T position, T count) {
  const unsigned width = 8 * sizeof(T);
  const unsigned begin = static_cast<unsigned>(position) & 255U;
  const unsigned length = static_cast<unsigned>(count) & 255U;
  using Bits = std::make_unsigned_t<T>;
  const auto bits = static_cast<Bits>(value);
  const unsigned last = begin + length - 1 < width - 1 ? begin + length - 1 : width - 1;
  const bool fill = std::is_signed_v<T> && length > 0 && (bits >> last & 1U) != 0;
  Bits out = 0;
  for (unsigned i = 0; i < width; ++i) {
    const bool bit = i < length && begin + i < width ? (bits >> (begin + i) & 1U) != 0 : fill;
    out |= static_cast<Bits>(Bits{bit} << i);
  }
  return static_cast<T>(out);
}

template <class T>
void insert(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  constexpr std::uint64_t kBits = 8 * sizeof(T);
  for_lanes(lanes, [&](std::size_t i) {
    const auto from = warp.lanes_of(in.registers[1])[i];
    std::uint64_t out = static_cast<T>(warp.lanes_of(in.registers[2])[i]);
    const auto begin = warp.lanes_of(in.registers[3])[i] & 255U;
    const auto length = warp.lanes_of(in.registers[4])[i] & 255U;
    for (std::uint64_t bit = 0; bit < length && begin + bit < kBits; ++bit)
      out = (out & ~(1ULL << (begin + bit))) | (from >> bit & 1U) << (begin + bit);
    warp.lanes_of(in.registers[0])[i] = out;
  });
}

template <bool kLeft, bool kWraps>
std::uint32_t funnel(std::uint32_t low, std::uint32_t high, std::uint32_t by) {
  const std::uint32_t n = kWraps ? by & 31U : by < 32 ? by : 32;
  const std::uint64_t both = (std::uint64_t{high} << 32) | low;
  return static_cast<std::uint32_t>(kLeft ? both << n >> 32 : both >> n);
}

// c plus four products of bytes.
template <class A, class B>
std::uint32_t dot4(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::int64_t sum = static_cast<std::int32_t>(c);
  for (unsigned i = 0; i < 4; ++i)
    sum += std::int64_t{static_cast<A>(a >> (8 * i))} * std::int64_t{static_cast<B>(b >> (8 * i))};
  return static_cast<std::uint32_t>(sum);
}

// c plus the products of two signed numbers of 16 bits with the two low signed bytes.
std::uint32_t dot2_low(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::int64_t sum = static_cast<std::int32_t>(c);
  for (unsigned i = 0; i < 2; ++i)
    sum +=
        std::int64_t{static_cast<std::int16_t>(a >> (16 * i))} * std::int64_t{static_cast<std::int8_t>(b >> (8 * i))};
  return static_cast<std::uint32_t>(sum);
}

std::uint32_t reversed(std::uint32_t value) {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 32; ++i)
    out |= (value >> i & 1U) << (31 - i);
  return out;
}

}  // namespace

void add_bit_operations(Operations& out) {
  using Word = std::uint32_t;
  out["prmt.b32"] = {&ternary<Word, &permute>};
  out["lop3.b32"] = {&logic3};
  out["bfe.u32"] = {&ternary<std::uint32_t, &extract<std::uint32_t>>};
  out["bfe.s32"] = {&ternary<std::int32_t, &extract<std::int32_t>>};
  out["bfi.b32"] = {&insert<std::uint32_t>};
  out["bfi.b64"] = {&insert<std::uint64_t>};
  out["shf.l.wrap.b32"] = {&ternary<Word, &funnel<true, true>>};
  out["shf.l.clamp.b32"] = {&ternary<Word, &funnel<true, false>>};
  out["shf.r.wrap.b32"] = {&ternary<Word, &funnel<false, true>>};
  out["shf.r.clamp.b32"] = {&ternary<Word, &funnel<false, false>>};
  out["dp2a.lo.s32.s32"] = {&ternary<Word, &dot2_low>};
  out["dp4a.u32.u32"] = {&ternary<Word, &dot4<std::uint8_t, std::uint8_t>>};
  out["dp4a.u32.s32"] = {&ternary<Word, &dot4<std::uint8_t, std::int8_t>>};
  out["dp4a.s32.u32"] = {&ternary<Word, &dot4<std::int8_t, std::uint8_t>>};
  out["dp4a.s32.s32"] = {&ternary<Word, &dot4<std::int8_t, std::int8_t>>};
  out["popc.b32"] = {&unary<Word, [](Word a) { return Word(std::popcount(a)); }>};
  out["clz.b32"] = {&unary<Word, [](Word a) { return Word(std::countl_zero(a)); }>};
  out["brev.b32"] = {&unary<Word, &reversed>};
}

}  // namespace quire::ptx
