#include "kernels/formats/quant_grids.h"

#include <bit>
#include <cstring>

#include "kernels/formats/half.h"

namespace quire {
namespace {

std::uint32_t load_u32(const std::uint8_t* from) {
  std::uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Seven signs are stored, the eighth makes their number even.
unsigned eight_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7;
}

// Eight levels of two bits and eight signs.
void put_eight(QuantGroup& out, unsigned eight, unsigned levels, unsigned signs) {
  for (unsigned i = 0; i < 8; ++i)
    out.quants[8 * eight + i] = static_cast<std::uint8_t>(((levels >> (2 * i)) & 3u) | (((signs >> i) & 1u) << 2));
}

// Two times four levels of three bits and eight signs.
void put_fours(QuantGroup& out, unsigned eight, unsigned first, unsigned second, unsigned signs) {
  const unsigned levels = first | (second << 12);
  for (unsigned i = 0; i < 8; ++i)
    out.quants[8 * eight + i] = static_cast<std::uint8_t>(((levels >> (3 * i)) & 7u) | (((signs >> i) & 1u) << 3));
}

// Odd multipliers 2 * scale + 1, of each 16 elements.
void put_scales(QuantGroup& out, unsigned first, unsigned second) {
  out.sub_scale[0] = static_cast<std::int8_t>(2 * first + 1);
  out.sub_scale[1] = static_cast<std::int8_t>(2 * second + 1);
}

void split_iq3_xxs(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const std::uint8_t* indices = block + 2 + 8 * group;
  const std::uint32_t rest = load_u32(block + 66 + 4 * group);
  put_scales(out, rest >> 28, rest >> 28);
  for (unsigned i = 0; i < 4; ++i) {
    put_fours(out, i, kGridIQ3XXS[indices[2 * i]], kGridIQ3XXS[indices[2 * i + 1]],
              eight_signs((rest >> (7 * i)) & 127u));
  }
}

void split_iq3_s(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const std::uint8_t* indices = block + 2 + 8 * group;
  const unsigned ninth = block[66 + group];
  const std::uint8_t* signs = block + 74 + 4 * group;
  const unsigned scale = (block[106 + group / 2] >> (4 * (group % 2))) & 15u;
  put_scales(out, scale, scale);
  const auto grid = [&](unsigned i) { return kGridIQ3S[indices[i] | (((ninth >> i) & 1u) << 8)]; };
  for (unsigned i = 0; i < 4; ++i)
    put_fours(out, i, grid(2 * i), grid(2 * i + 1), signs[i]);
}

void split_iq2_xxs(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const std::uint8_t* indices = block + 2 + 8 * group;
  const std::uint32_t rest = load_u32(indices + 4);
  put_scales(out, rest >> 28, rest >> 28);
  for (unsigned i = 0; i < 4; ++i)
    put_eight(out, i, kGridIQ2XXS[indices[i]], eight_signs((rest >> (7 * i)) & 127u));
}

void split_iq2_xs(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const unsigned scales = block[66 + group];
  put_scales(out, scales & 15u, scales >> 4);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned word = load_u16(block + 2 + 8 * group + 2 * i);
    put_eight(out, i, kGridIQ2XS[word & 511u], eight_signs(word >> 9));
  }
}

void split_iq2_s(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const std::uint8_t* indices = block + 2 + 4 * group;
  const std::uint8_t* signs = indices + 32;
  const unsigned high = block[66 + group];
  const unsigned scales = block[74 + group];
  put_scales(out, scales & 15u, scales >> 4);
  for (unsigned i = 0; i < 4; ++i)
    put_eight(out, i, kGridIQ2S[indices[i] | (((high >> (2 * i)) & 3u) << 8)], signs[i]);
}

// The sign of a code of IQ1 is that of the shift, which eight elements have in common.
unsigned all_of(unsigned bit) {
  return bit != 0 ? 255u : 0u;
}

void split_iq1_s(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  out.scale_f16 = load_u16(block);
  const std::uint8_t* indices = block + 2 + 4 * group;
  const unsigned high = load_u16(block + 34 + 2 * group);
  put_scales(out, (high >> 12) & 7u, (high >> 12) & 7u);
  for (unsigned i = 0; i < 4; ++i)
    put_eight(out, i, kGridIQ1S[indices[i] | (((high >> (3 * i)) & 7u) << 8)], all_of(high >> 15));
}

void split_iq1_m(const std::uint8_t* block, unsigned group, QuantGroup& out) {
  const std::uint8_t* indices = block + 4 * group;
  const std::uint8_t* high = block + 32 + 2 * group;
  unsigned d = 0;  // four bits on top of each word of scales
  for (unsigned i = 0; i < 4; ++i)
    d |= static_cast<unsigned>(load_u16(block + 48 + 2 * i) >> 12) << (4 * i);
  out.scale_f16 = static_cast<std::uint16_t>(d);
  const unsigned scales = static_cast<unsigned>(load_u16(block + 48 + group / 2 * 2)) >> (6 * (group % 2));
  put_scales(out, scales & 7u, (scales >> 3) & 7u);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned nibble = (static_cast<unsigned>(high[i / 2]) >> (4 * (i % 2))) & 15u;
    put_eight(out, i, kGridIQ1S[indices[i] | ((nibble & 7u) << 8)], all_of(nibble & 8u));
  }
}

}  // namespace

void split_grid_group(DType type, const std::uint8_t* block, int number, QuantGroup& out) {
  const auto group = static_cast<unsigned>(number);
  switch (type) {
    case DType::kIQ3_XXS: return split_iq3_xxs(block, group, out);
    case DType::kIQ3_S: return split_iq3_s(block, group, out);
    case DType::kIQ2_XXS: return split_iq2_xxs(block, group, out);
    case DType::kIQ2_XS: return split_iq2_xs(block, group, out);
    case DType::kIQ2_S: return split_iq2_s(block, group, out);
    case DType::kIQ1_S: return split_iq1_s(block, group, out);
    default: return split_iq1_m(block, group, out);
  }
}

}  // namespace quire
