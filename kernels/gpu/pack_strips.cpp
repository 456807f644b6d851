#include "kernels/gpu/pack_strips.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/gpu/strips.h"
#include "kernels/packed_scales.h"
#include "kernels/quant_blocks.h"

namespace quire::gpu {
namespace {

constexpr std::size_t kLaneBytes = 16;
constexpr std::size_t kLoadBytes = 32 * kLaneBytes;  // of one load of all lanes

// `bits` of a code, from its lowest on, into a plane whose loads hold a block's words as unpack.h reads them.
void put_low_bits(int bits, CodePlace place, int block, unsigned code, std::byte* codes) {
  const auto lane = static_cast<std::size_t>(place.lane) * kLaneBytes;
  const auto at = [&](int blocks_per_load, int word) -> std::byte& {
    const auto load = static_cast<std::size_t>(block / blocks_per_load) * kLoadBytes;
    return codes[load + lane + static_cast<std::size_t>(4 * word + place.byte)];
  };
  if (bits == 8) {
    at(1, place.word) = static_cast<std::byte>(code);
  } else if (bits == 4) {
    at(2, block % 2 * 2 + place.word / 2) |= static_cast<std::byte>((code & 15u) << (4 * (place.word % 2)));
  } else if (bits == 2) {
    at(4, block % 4) |= static_cast<std::byte>((code & 3u) << (2 * place.word));
  } else {
    at(8, block / 2) |= static_cast<std::byte>((code & 1u) << (place.word + 4 * (block % 2)));
  }
}

void put_codes(PackedFormat format, const QuantGroup& group, int output, int block, std::byte* codes) {
  const int low_bits = format.bits == 8 ? 8 : format.bits >= 4 ? 4 : 2;
  const int high_bits = format.bits - low_bits;
  std::byte* plane = codes + strip_layout(format).high_offset;
  for (int i = 0; i < kBlockFeatures; ++i) {
    const unsigned code = group.quants[static_cast<std::size_t>(i)];
    const CodePlace place = code_place(output, i);
    put_low_bits(low_bits, place, block, code, codes);
    if (high_bits > 0) put_low_bits(high_bits, place, block, code >> low_bits, plane);
  }
}

// One row of 16.
void pack_row(DType type, const std::byte* row, std::int64_t cols, int output, std::byte* out) {
  const PackedFormat format = packed_format(type);
  const StripLayout layout = strip_layout(format);
  const DTypeInfo& info = dtype_info(type);
  const std::int64_t block_groups = info.block_size / kSubBlock;
  const auto column = static_cast<std::size_t>(output);
  QuantGroup group;
  for (std::int64_t b = 0; b < cols / kBlockFeatures; ++b) {
    split_quant_group(type, row + static_cast<std::size_t>(b / block_groups) * info.block_bytes,
                      static_cast<int>(b % block_groups), group);
    std::byte* strip = out + b / kStripBlocks * layout.bytes;
    const auto block = static_cast<int>(b % kStripBlocks);
    if (block % format.groups == 0)
      pack_scale_header(format.scales, group, column, strip + header_offset(format, block));
    pack_scale_entry(format.scales, group, column, strip + entry_offset(format, block));
    put_codes(format, group, output, block, strip + layout.scale_bytes);
  }
}

}  // namespace

bool lies_in_strips(DType type) {
  const PackedFormat format = packed_format(type);
  return format.bits != 0 && format.scales != ScaleForm::kFloat8;
}

std::size_t strip_group_bytes(DType type, std::int64_t cols) {
  QUIRE_CHECK(lies_in_strips(type), "weights of a type that has no strips");
  const auto strips = static_cast<std::size_t>((cols + kStripFeatures - 1) / kStripFeatures);
  return strips * static_cast<std::size_t>(strip_layout(packed_format(type)).bytes);
}

std::size_t strips_bytes(DType type, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>((rows + kStripOutputs - 1) / kStripOutputs) * strip_group_bytes(type, cols);
}

void pack_strip_group(const WeightSource& source, std::int64_t group, std::byte* out) {
  const std::int64_t first_row = group * kStripOutputs;
  const auto count = static_cast<int>(std::min<std::int64_t>(kStripOutputs, source.rows - first_row));
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  std::memset(out, 0, strip_group_bytes(source.type, source.cols));
  std::vector<std::byte> made(source.maker == nullptr ? 0 : row_bytes);
  for (int output = 0; output < count; ++output) {
    const std::int64_t row = first_row + output;
    if (source.maker != nullptr) source.maker->make_row(source.first_row + row, made.data());
    pack_row(source.type,
             source.maker != nullptr ? made.data() : source.data + static_cast<std::size_t>(row) * row_bytes,
             source.cols, output, out);
  }
}

}  // namespace quire::gpu
