#include "kernels/quant_blocks.h"

#include "kernels/check.h"
#include "kernels/half.h"

namespace quire {
namespace {

const std::uint8_t* bytes(const std::byte* source) {
  return reinterpret_cast<const std::uint8_t*>(source);
}

// Sixteen bytes hold elements 0..15 in their low and 16..31 in their high nibbles.
void split_nibbles(const std::uint8_t* packed, QuantGroup& out) {
  for (std::size_t i = 0; i < 16; ++i) {
    out.quants[i] = packed[i] & 0xf;
    out.quants[i + 16] = packed[i] >> 4;
  }
}

void add_fifth_bits(const std::uint8_t* planes, QuantGroup& out) {
  for (std::size_t i = 0; i < 32; ++i) {
    const int bit = (planes[i / 8] >> (i % 8)) & 1;
    out.quants[i] = static_cast<std::uint8_t>(out.quants[i] | (bit << 4));
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
  for (std::size_t i = 0; i < 32; ++i) {
    int quant = (group % 2 == 0) ? low[i] & 0xf : low[i] >> 4;
    if (type == DType::kQ5_K) quant |= ((high[i] >> group) & 1) << 4;
    out.quants[i] = static_cast<std::uint8_t>(quant);
  }
}

void split_q6_k(const std::uint8_t* block, int group, QuantGroup& out) {
  const int half = group / 4;
  const int part = group % 4;
  const std::uint8_t* low = block + 64 * half + 32 * (part % 2);
  const std::uint8_t* high = block + 128 + 32 * half;
  for (std::size_t i = 0; i < 32; ++i) {
    const int nibble = part < 2 ? low[i] & 0xf : low[i] >> 4;
    out.quants[i] = static_cast<std::uint8_t>(nibble | (((high[i] >> (2 * part)) & 3) << 4));
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
