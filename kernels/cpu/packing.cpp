#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/formats/packed_format.h"
#include "kernels/formats/packed_scales.h"
#include "kernels/formats/quant_blocks.h"

namespace quire {
namespace {

bool is_quantised(DType type) {
  return packed_format(type).bits != 0;
}

void put_f32(std::byte* at, std::size_t column, float value) {
  std::memcpy(at + 4 * column, &value, 4);
}

// A code that is no number makes the whole column's product none, as it would be by definition.
float scale_of_float8(const QuantGroup& group) {
  const auto is_nan = [](std::uint8_t code) { return (code & 0x7f) == 0x7f; };
  return std::ranges::any_of(group.quants, is_nan) ? std::numeric_limits<float>::quiet_NaN() : group.scale_f32;
}

std::uint64_t load_u64(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void store_u32(std::uint8_t* to, std::uint64_t value) {
  const auto low = static_cast<std::uint32_t>(value);
  std::memcpy(to, &low, sizeof low);
}

constexpr std::uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0full;

// Two or three bits: the plane of third bits, then for each four groups of four features a plane of pairs of bits.
void pack_few_bits(int bits, const QuantGroup& group, std::uint8_t* bytes) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (std::size_t i = 0; i < 4; ++i) {
      const unsigned code = group.quants[4 * g + i];
      std::uint8_t& low = bytes[64 * (g / 4 + (bits == 3 ? 1 : 0)) + i];
      low = static_cast<std::uint8_t>(low | ((code & 3u) << (2 * (g % 4))));
      if (bits == 3) bytes[i] = static_cast<std::uint8_t>(bytes[i] | ((code >> 2) << g));
    }
  }
}

// E4M3 in the order of features: [feature][column].
void pack_float8(const QuantGroup& group, std::size_t column, std::byte* out) {
  for (std::size_t i = 0; i < kSubBlock; ++i)
    out[kPanelCols * i + column] = static_cast<std::byte>(group.quants[i]);
}

// Bits of each code that PanelForm::kSignedCodes flips: flipping them subtracts the code's zero.
std::uint8_t flipped_bits(const PackedFormat& format) {
  if (format.bits == 8) return 0x80;
  return format.signed_nibbles() ? 0x08 : 0;
}

// Bit planes first, then nibbles: group g of four features is the low or high half of bytes [64 * (g / 2), + 64). Eight
// quants, two groups, are handled at a time as bytes of one word. flipped: bits of each code that change.
void pack_quants(int bits, const QuantGroup& group, std::size_t column, std::uint8_t flipped, std::byte* out) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(out) + 4 * column;
  if (bits == 8) {
    for (std::size_t i = 0; i < kSubBlock; ++i)
      bytes[64 * (i / 4) + i % 4] = static_cast<std::uint8_t>(group.quants[i] ^ flipped);
    return;
  }
  if (bits < 4) return pack_few_bits(bits, group, bytes);
  const auto planes = static_cast<std::size_t>(bits - 4);
  std::uint64_t plane[2] = {0, 0};
  for (std::size_t pair = 0; pair < 4; ++pair) {
    const std::uint64_t quants = load_u64(&group.quants[8 * pair]) ^ (0x0101010101010101ull * flipped);
    const std::uint64_t nibbles = quants & kLowNibbles;
    store_u32(bytes + 64 * (planes + pair), nibbles | (nibbles >> 28));
    const std::uint64_t high = (quants >> 4) & kLowNibbles;
    const std::uint64_t first = high & 0xffffffffu;
    const std::uint64_t second = high >> 32;
    if (bits == 5) plane[0] |= (first << (2 * pair)) | (second << (2 * pair + 1));
    if (bits == 6) plane[pair / 2] |= (first << (4 * (pair % 2))) | (second << (4 * (pair % 2) + 2));
  }
  if (bits >= 5) store_u32(bytes, plane[0]);
  if (bits == 6) store_u32(bytes + 64, plane[1]);
}

// Packs in the order of nibble_place: of each eight quants, four are two bytes of the first half, four of the second.
void pack_nibbles_by_column(const QuantGroup& group, std::size_t column, std::byte* out) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(out) + 16 * column;
  for (std::size_t eight = 0; eight < 4; ++eight) {
    std::uint64_t quants = load_u64(&group.quants[8 * eight]);
    quants = (quants | (quants >> 4)) & 0x00ff00ff00ff00ffull;
    quants |= quants >> 8;
    const auto first = static_cast<std::uint16_t>(quants);
    const auto second = static_cast<std::uint16_t>(quants >> 32);
    std::memcpy(bytes + 2 * eight, &first, sizeof first);
    std::memcpy(bytes + 8 + 2 * eight, &second, sizeof second);
  }
}

void pack_quantised(const WeightSource& source, std::int64_t first_row, std::size_t columns, PanelForm form,
                    std::byte* out) {
  const PackedFormat format = packed_format(source.type);
  const DTypeInfo& info = dtype_info(source.type);
  const std::int64_t block_groups = info.block_size / kSubBlock;
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  const std::size_t quant_bytes = 64 * static_cast<std::size_t>(format.bits);
  const bool by_column = format.bits == 4 && !format.has_halves() && form == PanelForm::kNibblesByColumn;
  const std::uint8_t flipped = form == PanelForm::kSignedCodes ? flipped_bits(format) : 0;
  std::byte* meta = out;
  std::byte* header = out;
  std::byte* quants = out + panel_layout(source.type, source.cols).quants_offset;
  QuantGroup group;
  for (std::int64_t g = 0; g < source.cols / kSubBlock; ++g, meta += format.entry, quants += quant_bytes) {
    const bool first = g % format.groups == 0;
    if (first) {
      header = meta;
      meta += format.header;
    }
    for (std::size_t column = 0; column < columns; ++column) {
      const std::byte* row = source.data + (static_cast<std::size_t>(first_row) + column) * row_bytes;
      split_quant_group(source.type, row + static_cast<std::size_t>(g / block_groups) * info.block_bytes,
                        static_cast<int>(g % block_groups), group);
      if (format.scales == ScaleForm::kFloat8) {
        const float scale = scale_of_float8(group);
        if (first || scale != group.scale_f32) put_f32(header, column, scale);
        pack_float8(group, column, quants);
        continue;
      }
      if (first) pack_scale_header(format.scales, group, column, header);
      pack_scale_entry(format.scales, group, column, meta);
      if (by_column) {
        pack_nibbles_by_column(group, column, quants);
      } else {
        pack_quants(format.bits, group, column, flipped, quants);
      }
    }
  }
}

// [depth][16], or for BF16 [depth / 2][16][2], the pairs that AMX tiles are made of.
void pack_float(const WeightSource& source, std::int64_t first_row, std::size_t columns, std::byte* out) {
  const std::size_t size = dtype_info(source.type).block_bytes;
  const auto cols = static_cast<std::size_t>(source.cols);
  const std::size_t pair = source.type == DType::kBF16 ? 2 : 1;
  for (std::size_t column = 0; column < columns; ++column) {
    const std::byte* row = source.data + (static_cast<std::size_t>(first_row) + column) * cols * size;
    for (std::size_t k = 0; k < cols; ++k) {
      std::memcpy(out + ((k / pair * kPanelCols + column) * pair + k % pair) * size, row + k * size, size);
    }
  }
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void pack_rows(const WeightSource& source, std::int64_t first_row, std::size_t columns, PanelForm form,
               std::byte* out) {
  if (is_quantised(source.type)) {
    pack_quantised(source, first_row, columns, form, out);
  } else {
    pack_float(source, first_row, columns, out);
  }
}

}  // namespace

PanelLayout panel_layout(DType type, std::int64_t cols) {
  const PackedFormat format = packed_format(type);
  const auto depth = static_cast<std::size_t>(type == DType::kF32 ? cols : padded_depth(cols));
  if (format.bits == 0) return {round_up(depth * kPanelCols * dtype_info(type).block_bytes), 0};
  const std::size_t num_blocks = depth / kSubBlock;
  const auto groups = static_cast<std::size_t>(format.groups);
  const std::size_t meta = num_blocks * static_cast<std::size_t>(format.entry) +
                           (num_blocks + groups - 1) / groups * static_cast<std::size_t>(format.header);
  return {round_up(meta) + num_blocks * 64 * static_cast<std::size_t>(format.bits), round_up(meta)};
}

void pack_panel(const WeightSource& source, std::int64_t panel, PanelForm form, std::byte* out) {
  const std::int64_t first_row = panel * kPanelCols;
  const std::int64_t left = source.rows - first_row;
  const auto columns = static_cast<std::size_t>(left < kPanelCols ? left : kPanelCols);
  if (source.maker == nullptr) return pack_rows(source, first_row, columns, form, out);
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  std::vector<std::byte> made(columns * row_bytes);
  for (std::size_t i = 0; i < columns; ++i)
    source.maker->make_row(source.first_row + first_row + static_cast<std::int64_t>(i), &made[i * row_bytes]);
  pack_rows({.type = source.type, .rows = kPanelCols, .cols = source.cols, .data = made.data()}, 0, columns, form, out);
}

}  // namespace quire
