#include "kernels/gpu/pack/pack_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "kernels/formats/packed_scales.h"
#include "kernels/formats/quant_blocks.h"
#include "kernels/gpu/pack/strips.h"

namespace quire::gpu {
namespace {

constexpr std::size_t kLoadBytes = 512;    // sixteen of each lane
constexpr std::size_t kPairBytes = 64;     // a load of the four lanes of outputs o and o + 8
constexpr int kPairs = kStripOutputs / 2;  // pairs of outputs that the same lanes multiply
constexpr int kRunFeatures = 16;           // features of an output in a register of four lanes
constexpr int kRuns = 2 * kStripFeatures / kRunFeatures;

// The codes of outputs o and o + 8 in a strip, in the order of code_place(): runs as [block][half of it][output].
struct PairCodes {
  std::uint64_t runs[kRuns][2];  // a byte is a code
};

// kBits of each code, from bit `shift` on: a byte holds those of consecutive runs, and each lane has four bytes of each
// of four words.
template <int kBits>
void put_plane(const PairCodes& codes, int shift, std::byte* out) {
  constexpr int kTogether = 8 / kBits;
  constexpr std::uint64_t kMask = 0x0101010101010101ull * ((1u << kBits) - 1);
  for (int load = 0; load < kBits; ++load, out += kLoadBytes) {
    std::uint64_t words[4][2] = {};
    for (int word = 0; word < 4; ++word) {
      for (int run = 0; run < kTogether; ++run) {
        const auto& own = codes.runs[kTogether * (4 * load + word) + run];
        for (int i = 0; i < 2; ++i)
          words[word][i] |= ((own[i] >> shift) & kMask) << (kBits * run);
      }
    }
    for (int lane = 0; lane < 4; ++lane) {
      for (int word = 0; word < 4; ++word) {
        const auto bytes = static_cast<std::uint32_t>(words[word][lane / 2] >> (32 * (lane % 2)));
        std::memcpy(out + 16 * lane + 4 * word, &bytes, sizeof bytes);
      }
    }
  }
}

void put_codes(PackedFormat format, const PairCodes& codes, std::byte* out) {
  std::byte* const plane = out + strip_layout(format).high_offset;
  if (format.bits == 8) return put_plane<8>(codes, 0, out);
  if (format.bits < 4) {
    put_plane<2>(codes, 0, out);
    if (format.bits == 3) put_plane<1>(codes, 2, plane);
    return;
  }
  put_plane<4>(codes, 0, out);
  if (format.bits == 5) put_plane<1>(codes, 4, plane);
  if (format.bits == 6) put_plane<2>(codes, 4, plane);
}

// Blocks [first, first + count) of a row, which are those of a strip: scales go to the strip, codes to `codes`.
void split_blocks(DType type, const std::byte* row, std::int64_t first, int count, int output, std::byte* strip,
                  PairCodes& codes) {
  const PackedFormat format = packed_format(type);
  const DTypeInfo& info = dtype_info(type);
  const std::int64_t block_groups = info.block_size / kSubBlock;
  const auto column = static_cast<std::size_t>(output);
  const int pair = output / kPairs;
  QuantGroup group;
  for (int block = 0; block < count; ++block) {
    split_quant_group(type, row + static_cast<std::size_t>((first + block) / block_groups) * info.block_bytes,
                      static_cast<int>((first + block) % block_groups), group);
    if (block % format.groups == 0)
      pack_scale_header(format.scales, group, column, strip + header_offset(format, block));
    pack_scale_entry(format.scales, group, column, strip + entry_offset(format, block));
    std::memcpy(codes.runs[4 * block + pair], &group.quants[0], kRunFeatures);
    std::memcpy(codes.runs[4 * block + 2 + pair], &group.quants[kRunFeatures], kRunFeatures);
  }
}

// Packs outputs `output` and output + 8 of all strips; an absent row is null.
void pack_pair(DType type, const std::byte* const (&rows)[2], std::int64_t cols, int output, std::byte* out) {
  const PackedFormat format = packed_format(type);
  const StripLayout layout = strip_layout(format);
  const std::int64_t num_blocks = cols / kBlockFeatures;
  PairCodes codes{};
  for (std::int64_t first = 0; first < num_blocks; first += kStripBlocks, out += layout.bytes) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kStripBlocks, num_blocks - first));
    if (count < kStripBlocks) codes = {};
    for (int i = 0; i < 2; ++i) {
      if (rows[i] != nullptr) split_blocks(type, rows[i], first, count, output + i * kPairs, out, codes);
    }
    put_codes(format, codes, out + layout.scale_bytes + static_cast<std::size_t>(output) * kPairBytes);
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
  const StripLayout layout = strip_layout(packed_format(source.type));
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  for (std::size_t strip = 0; strip < strip_group_bytes(source.type, source.cols);
       strip += static_cast<std::size_t>(layout.bytes))
    std::memset(out + strip, 0, static_cast<std::size_t>(layout.scale_bytes));
  std::vector<std::byte> made(source.maker == nullptr ? 0 : 2 * row_bytes);
  for (int output = 0; output < kPairs; ++output) {
    const std::byte* rows[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t row = group * kStripOutputs + output + static_cast<std::int64_t>(i) * kPairs;
      if (row >= source.rows) continue;
      rows[i] = source.data + static_cast<std::size_t>(row) * row_bytes;
      if (source.maker == nullptr) continue;
      source.maker->make_row(source.first_row + row, &made[i * row_bytes]);
      rows[i] = &made[i * row_bytes];
    }
    pack_pair(source.type, rows, source.cols, output, out);
  }
}

}  // namespace quire::gpu
