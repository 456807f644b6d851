// Strips: how quantised weights lie in a device's memory. A strip is 16 outputs times 256 features, contiguous: scales
// as in the CPU's panels (packed_format.h), then codes in the order in which the lanes of a warp multiply them, 16
// bytes a load. Read by host and device code; immutable facts, any thread. Invariant: every code and scale is the
// source's own; what pads outputs and depth is zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/packed_format.h"

namespace quire::gpu {

inline constexpr int kStripOutputs = 16;
inline constexpr int kStripFeatures = 256;
inline constexpr int kBlockFeatures = 32;
inline constexpr int kStripBlocks = kStripFeatures / kBlockFeatures;
inline constexpr int kDepthCut = 1024;  // sums of cuts of so many features are added in order
inline constexpr int kCutStrips = kDepthCut / kStripFeatures;

// Layout of the codes' bits behind the scales. Whole bytes, nibbles or pairs of bits come first, then the plane of the
// higher bits; each begins with the 16 bytes of lane 0.
struct StripLayout {
  int scale_bytes = 0;
  int high_offset = 0;  // offset of the plane from the first code
  int bytes = 0;
};

constexpr StripLayout strip_layout(PackedFormat format) {
  const int scale_bytes = kStripBlocks / format.groups * format.header + kStripBlocks * format.entry;
  const int low_bits = format.bits == 8 ? 8 : format.bits >= 4 ? 4 : 2;
  const int bits_bytes = kStripOutputs * kStripFeatures / 8;  // bytes of one bit of all codes
  return {scale_bytes, low_bits * bits_bytes, scale_bytes + format.bits * bits_bytes};
}

// Offsets of a block's header and entry among the scales.
constexpr int header_offset(PackedFormat format, unsigned block) {
  return static_cast<int>(block / static_cast<unsigned>(format.groups)) *
         (format.header + format.groups * format.entry);
}
constexpr int entry_offset(PackedFormat format, unsigned block) {
  return header_offset(format, block) + format.header +
         static_cast<int>(block % static_cast<unsigned>(format.groups)) * format.entry;
}

// The place of a code in the A operand of mma.m16n8k32: lane, register and byte.
struct CodePlace {
  int lane = 0;
  int word = 0;  // index among the lane's four
  int byte = 0;
};

constexpr CodePlace code_place(int output, int feature) {
  return {output % 8 * 4 + feature % 16 / 4, output / 8 + 2 * (feature / 16), feature % 4};
}

}  // namespace quire::gpu
