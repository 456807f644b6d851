#include "kernels/quant_blocks.h"

#include <cstring>

#include "kernels/check.h"
#include "kernels/half.h"

namespace quire {
namespace {

const std::uint8_t* bytes(const std::byte* source) {
  return reinterpret_cast<const std::uint8_t*>(source);
}

// Quants are handled eight at a time, as the bytes of one word.
std::uint64_t load_word(const std::uint8_t* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void store_word(QuantGroup& out, std::size_t first, std::uint64_t word) {
  std::memcpy(&out.quants[first], &word, sizeof word);
}

constexpr std::uint64_t repeat(std::uint64_t byte) {
  return byte * 0x0101010101010101ull;
}

// Sixteen bytes hold elements 0..15 in their low and 16..31 in their high nibbles.
void split_nibbles(const std::uint8_t* packed, QuantGroup& out) {
  for (std::size_t i = 0; i < 16; i += 8) {
    const std::uint64_t word = load_word(packed + i);
    store_word(out, i, word & repeat(0xf));
    store_word(out, i + 16, (word >> 4) & repeat(0xf));
  }
}

// Bit i of the four bytes becomes bit 4 of quant i.
void add_fifth_bits(const std::uint8_t* planes, QuantGroup& out) {
  for (std::size_t i = 0; i < 4; ++i) {
    // Eight copies of the byte, each reduced to its own bit, which an addition carries to the top of its byte.
    const std::uint64_t own = repeat(planes[i]) & 0x8040201008040201ull;
    const std::uint64_t top = (own + 0x00406070787c7e7full) & repeat(0x80);
    store_word(out, 8 * i, load_word(&out.quants[8 * i]) | (top >> 3));
  }
}

void split_simple(DType type, const std::uint8_t* block, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const bool has_minimum = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool five_bits = type == DType::kQ5_0 || type == DType::kQ5_1;
  const std::uint8_t* rest = block + 2;
  if (has_minimum) {
    out.minimum_f16 = load_u16(rest);
    rest += 2;
  }
  split_nibbles(five_bits ? rest + 4 : rest, out);
  if (five_bits) add_fifth_bits(rest, out);
}

// The 6-bit scales and minima of Q4_K and Q5_K: eight of each in twelve bytes.
void split_k_scales(const std::uint8_t* packed, int group, QuantGroup& out) {
  if (group < 4) {
    out.sub_scale[0] = static_cast<std::int8_t>(packed[group] & 63);
    out.sub_minimum = packed[group + 4] & 63;
  } else {
    out.sub_scale[0] = static_cast<std::int8_t>((packed[group + 4] & 0xf) | ((packed[group - 4] >> 6) << 4));
    out.sub_minimum = static_cast<std::uint8_t>((packed[group + 4] >> 4) | ((packed[group] >> 6) << 4));
  }
}

void split_k45(DType type, const std::uint8_t* block, int group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  out.minimum_f16 = load_u16(block + 2);
  split_k_scales(block + 4, group, out);
  const std::uint8_t* high = block + 16;
  const std::uint8_t* low = type == DType::kQ5_K ? block + 48 : block + 16;
  low += 32 * (group / 2);
  for (std::size_t i = 0; i < 32; i += 8) {
    std::uint64_t quants = (load_word(low + i) >> (4 * (group % 2))) & repeat(0xf);
    if (type == DType::kQ5_K) quants |= ((load_word(high + i) >> group) & repeat(1)) << 4;
    store_word(out, i, quants);
  }
}

void split_q6_k(const std::uint8_t* block, int group, QuantGroup& out) {
  const int half = group / 4;
  const int part = group % 4;
  const std::uint8_t* low = block + 64 * half + 32 * (part % 2);
  const std::uint8_t* high = block + 128 + 32 * half;
  for (std::size_t i = 0; i < 32; i += 8) {
    const std::uint64_t nibbles = (load_word(low + i) >> (4 * (part / 2))) & repeat(0xf);
    store_word(out, i, nibbles | (((load_word(high + i) >> (2 * part)) & repeat(3)) << 4));
  }
  out.sub_scale[0] = static_cast<std::int8_t>(block[192 + 2 * group]);
  out.sub_scale[1] = static_cast<std::int8_t>(block[193 + 2 * group]);
  out.scale_f16 = load_u16(block + 208);
}

}  // namespace

void split_quant_group(DType type, const std::byte* source, int group, QuantGroup& out) {
  const std::uint8_t* block = bytes(source);
  switch (type) {
    case DType::kQ8_0:
      out.scale_f16 = load_u16(block);
      for (std::size_t i = 0; i < 32; ++i)
        out.quants[i] = block[2 + i] ^ 0x80;
      return;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1: return split_simple(type, block, out);
    case DType::kQ4_K:
    case DType::kQ5_K: return split_k45(type, block, group, out);
    case DType::kQ6_K: return split_q6_k(block, group, out);
    default: QUIRE_CHECK(false, "not a quantised type");
  }
}

int quant_zero(DType type) {
  switch (type) {
    case DType::kQ8_0: return 128;
    case DType::kQ4_0: return 8;
    case DType::kQ5_0: return 16;
    case DType::kQ6_K: return 32;
    default: return 0;
  }
}

}  // namespace quire
