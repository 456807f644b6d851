#include "kernels/formats/quant_blocks.h"

#include <cstring>

#include "kernels/check.h"
#include "kernels/formats/half.h"
#include "kernels/formats/quant_grids.h"

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

// Two bits a quant: four runs of 32 in the same 32 bytes.
void take_two_bits(const std::uint8_t* packed, int part, QuantGroup& out) {
  for (std::size_t i = 0; i < 32; i += 8)
    store_word(out, i, (load_word(packed + i) >> (2 * part)) & repeat(3));
}

void split_q2_k(const std::uint8_t* block, int group, QuantGroup& out) {
  out.sub_scale[0] = static_cast<std::int8_t>(block[2 * group]);
  out.sub_scale[1] = static_cast<std::int8_t>(block[2 * group + 1]);
  take_two_bits(block + 16 + 32 * (group / 4), group % 4, out);
  out.scale_f16 = load_u16(block + 80);
  out.minimum_f16 = load_u16(block + 82);
}

// Sixteen scales of six bits: the low four of number i are a nibble of byte i % 8, the high two lie in the last four.
std::int8_t q3_k_scale(const std::uint8_t* packed, int index) {
  const int low = index < 8 ? packed[index] & 15 : packed[index - 8] >> 4;
  const int high = (packed[8 + index % 4] >> (2 * (index / 4))) & 3;
  return static_cast<std::int8_t>((low | (high << 4)) - 32);
}

void split_q3_k(const std::uint8_t* block, int group, QuantGroup& out) {
  take_two_bits(block + 32 + 32 * (group / 4), group % 4, out);
  for (std::size_t i = 0; i < 32; i += 8) {
    const std::uint64_t high = (load_word(block + i) >> group) & repeat(1);
    store_word(out, i, load_word(&out.quants[i]) | (high << 2));
  }
  out.sub_scale[0] = q3_k_scale(block + 96, 2 * group);
  out.sub_scale[1] = q3_k_scale(block + 96, 2 * group + 1);
  out.scale_f16 = load_u16(block + 108);
}

void split_iq4_xs(const std::uint8_t* block, int group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const int low = (block[4 + group / 2] >> (4 * (group % 2))) & 15;
  const int high = (load_u16(block + 2) >> (2 * group)) & 3;
  out.sub_scale[0] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  split_nibbles(block + 8 + 16 * group, out);
}

// Nibbles of each 16 elements together: 0..7 low, 8..15 high.
void split_nvfp4(const std::uint8_t* block, int group, QuantGroup& out) {
  for (std::size_t half = 0; half < 2; ++half) {
    const std::uint8_t scale = block[2 * static_cast<std::size_t>(group) + half] & 0x7f;
    out.sub_scale[half] = static_cast<std::int8_t>(scale == 0x7f ? 0 : scale);
    const std::uint64_t word = load_word(block + 4 + 16 * static_cast<std::size_t>(group) + 8 * half);
    store_word(out, 16 * half, word & repeat(0xf));
    store_word(out, 16 * half + 8, (word >> 4) & repeat(0xf));
  }
}

// Five digits to the base three in a byte, as the fraction of 256 that they are of 243: the first digit is on top.
void split_tq1_0(const std::uint8_t* block, int group, QuantGroup& out) {
  static constexpr std::uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto digit = [](std::uint8_t byte, std::size_t place) {
    const auto rest = static_cast<std::uint8_t>(byte * kPowers[place]);
    return static_cast<std::uint8_t>((rest * 3) >> 8);
  };
  for (std::size_t i = 0; i < kSubBlock; ++i) {
    const std::size_t at = 32 * static_cast<std::size_t>(group) + i;
    if (at < 160) {
      out.quants[i] = digit(block[at % 32], at / 32);
    } else if (at < 240) {
      out.quants[i] = digit(block[32 + (at - 160) % 16], (at - 160) / 16);
    } else {
      out.quants[i] = digit(block[48 + (at - 240) % 4], (at - 240) / 4);
    }
  }
  out.scale_f16 = load_u16(block + 52);
}

// Bit planes of one bit (0 is -1, 1 is +1) or two (less one), lowest first.
void split_bits(DType type, const std::uint8_t* block, int group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const auto at = [&](std::size_t i) { return static_cast<std::size_t>(kSubBlock * group) + i; };
  for (std::size_t i = 0; i < kSubBlock; ++i) {
    if (type == DType::kQ1_0) {
      out.quants[i] = static_cast<std::uint8_t>(((block[2 + at(i) / 8] >> (at(i) % 8)) & 1) << 1);
    } else {
      out.quants[i] = (block[2 + at(i) / 4] >> (2 * (at(i) % 4))) & 3;
    }
  }
}

void split_int4(const std::uint8_t* block, int group, QuantGroup& out) {
  block += 21 * group;
  std::memcpy(&out.scale_f32, block, sizeof out.scale_f32);
  out.sub_minimum = block[4];
  split_nibbles(block + 5, out);
}

void split_float8(const std::uint8_t* block, QuantGroup& out) {
  std::memcpy(&out.scale_f32, block, sizeof out.scale_f32);
  std::memcpy(out.quants.data(), block + 4, kSubBlock);
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
    case DType::kQ5_1:
    case DType::kIQ4_NL: return split_simple(type, block, out);
    case DType::kQ4_K:
    case DType::kQ5_K: return split_k45(type, block, group, out);
    case DType::kQ6_K: return split_q6_k(block, group, out);
    case DType::kQ3_K: return split_q3_k(block, group, out);
    case DType::kQ2_K: return split_q2_k(block, group, out);
    case DType::kIQ4_XS: return split_iq4_xs(block, group, out);
    case DType::kMXFP4: out.sub_scale[0] = static_cast<std::int8_t>(block[0]); return split_nibbles(block + 1, out);
    case DType::kNVFP4: return split_nvfp4(block, group, out);
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M: return split_grid_group(type, block, group, out);
    case DType::kTQ1_0: return split_tq1_0(block, group, out);
    case DType::kTQ2_0:
      out.scale_f16 = load_u16(block + 64);
      return take_two_bits(block + 32 * (group / 4), group % 4, out);
    case DType::kQ1_0:
    case DType::kQ2_0: return split_bits(type, block, group, out);
    case DType::kI4G32:
    case DType::kI4G128: return split_int4(block, group, out);
    case DType::kF8: return split_float8(block, out);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: break;
  }
  QUIRE_CHECK(false, "not a quantised type");
}

}  // namespace quire
