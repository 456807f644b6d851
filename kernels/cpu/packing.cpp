#include "kernels/cpu/packing.h"

#include <array>
#include <cstring>

#include "kernels/quant_blocks.h"

namespace quire {
namespace {

// Bytes of scales: per super-block of `groups` blocks of 32, then per block, for 16 columns; bits of a quant.
struct Format {
  int bits;
  int groups;
  std::size_t header;
  std::size_t entry;
};

Format format_of(DType type) {
  switch (type) {
    case DType::kQ8_0: return {8, 1, 0, 32};
    case DType::kQ4_0: return {4, 1, 0, 32};
    case DType::kQ4_1: return {4, 1, 0, 64};
    case DType::kQ5_0: return {5, 1, 0, 32};
    case DType::kQ5_1: return {5, 1, 0, 64};
    case DType::kQ4_K: return {4, 8, 64, 32};
    case DType::kQ5_K: return {5, 8, 64, 32};
    case DType::kQ6_K: return {6, 8, 32, 32};
    default: return {0, 1, 0, 0};
  }
}

void put_u16(std::byte* at, std::size_t column, std::uint16_t value) {
  std::memcpy(at + 2 * column, &value, 2);
}

void pack_scales(DType type, const Format& format, const QuantGroup& group, bool first, std::size_t column,
                 std::byte* header, std::byte* entry) {
  if (format.groups == 1) {
    put_u16(entry, column, group.scale_f16);
    if (format.entry == 64) put_u16(entry + 32, column, group.minimum_f16);
    return;
  }
  if (first) {
    put_u16(header, column, group.scale_f16);
    if (type != DType::kQ6_K) put_u16(header + 32, column, group.minimum_f16);
  }
  entry[column] = static_cast<std::byte>(group.sub_scale[0]);
  entry[16 + column] =
      type == DType::kQ6_K ? static_cast<std::byte>(group.sub_scale[1]) : static_cast<std::byte>(group.sub_minimum);
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

// Bit planes first, then nibbles: group g of four features is the low or high half of bytes [64 * (g / 2), + 64). Eight
// quants, two groups, are handled at a time as bytes of one word.
void pack_quants(int bits, const QuantGroup& group, std::size_t column, std::byte* out) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(out) + 4 * column;
  if (bits == 8) {
    for (std::size_t g = 0; g < 8; ++g)
      std::memcpy(bytes + 64 * g, &group.quants[4 * g], 4);
    return;
  }
  const auto planes = static_cast<std::size_t>(bits - 4);
  std::uint64_t plane[2] = {0, 0};
  for (std::size_t pair = 0; pair < 4; ++pair) {
    const std::uint64_t quants = load_u64(&group.quants[8 * pair]);
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

// In the order of nibble_place: of each eight quants, four are two bytes of the first half, four of the second.
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

void pack_quantised(const WeightSource& source, std::int64_t first_row, std::size_t columns, NibbleOrder nibbles,
                    std::byte* out) {
  const Format format = format_of(source.type);
  const DTypeInfo& info = dtype_info(source.type);
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  const std::size_t quant_bytes = 64 * static_cast<std::size_t>(format.bits);
  std::byte* meta = out;
  std::byte* quants = out + panel_layout(source.type, source.cols).quants_offset;
  QuantGroup group;
  for (std::int64_t block = 0; block < source.cols / info.block_size; ++block) {
    std::byte* header = meta;
    meta += format.header;
    for (int g = 0; g < format.groups; ++g, meta += format.entry, quants += quant_bytes) {
      for (std::size_t column = 0; column < columns; ++column) {
        const std::byte* row = source.data + (static_cast<std::size_t>(first_row) + column) * row_bytes;
        split_quant_group(source.type, row + static_cast<std::size_t>(block) * info.block_bytes, g, group);
        pack_scales(source.type, format, group, g == 0, column, header, meta);
        if (format.bits == 4 && nibbles == NibbleOrder::kByColumn) {
          pack_nibbles_by_column(group, column, quants);
        } else {
          pack_quants(format.bits, group, column, quants);
        }
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

}  // namespace

PanelLayout panel_layout(DType type, std::int64_t cols) {
  const Format format = format_of(type);
  const auto depth = static_cast<std::size_t>(type == DType::kF32 ? cols : padded_depth(cols));
  if (format.bits == 0) return {round_up(depth * kPanelCols * dtype_info(type).block_bytes), 0};
  const std::size_t num_blocks = depth / kSubBlock;
  const std::size_t meta =
      num_blocks * format.entry + num_blocks / static_cast<std::size_t>(format.groups) * format.header;
  return {round_up(meta) + num_blocks * 64 * static_cast<std::size_t>(format.bits), round_up(meta)};
}

void pack_panel(const WeightSource& source, std::int64_t panel, NibbleOrder nibbles, std::byte* out) {
  const std::int64_t first_row = panel * kPanelCols;
  const std::int64_t left = source.rows - first_row;
  const auto columns = static_cast<std::size_t>(left < kPanelCols ? left : kPanelCols);
  std::memset(out, 0, panel_layout(source.type, source.cols).bytes);
  if (format_of(source.type).bits == 0) {
    pack_float(source, first_row, columns, out);
  } else {
    pack_quantised(source, first_row, columns, nibbles, out);
  }
}

}  // namespace quire
