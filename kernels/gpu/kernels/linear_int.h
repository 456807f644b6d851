// What the products of quantised weights with int8 activations have in common: the sums of one block are exact
// integers, scaled into f32 as on the CPU level avx512; sums over kDepthCut features each are added in order.
// Invariant: an element's chain depends on its row and its output alone, so that linear_skinny and linear_wide give the
// same bits, whatever rows come together.
#pragma once

#include "kernels/gpu/act_tiles.h"
#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/portable.h"
#include "kernels/gpu/kernels/unpack.h"
#include "kernels/gpu/strips.h"

namespace quire::gpu {

// Where the results of a product go.
struct LinearOutput {
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  float scale = 1.0f;           // of all products
  bool accumulate = false;

  // From here on the rows of one expert, which begin in the block's own.
  QUIRE_DEVICE void narrow_to(const ExpertItem& item, const ExpertWeights& expert) {
    rows = item.rows;
    out += item.first_row * out_stride;
    if (bias != nullptr) bias += expert.bias;
    scale = expert.scale;
  }
};

struct LinearIntArgs {
  const std::byte* strips = nullptr;  // [outputs / 16][strips of the depth]
  const ActTile* tiles = nullptr;     // [rows / 8][num_blocks]
  std::int64_t num_blocks = 0;        // of the depth
  LinearOutput output;
  ExpertProduct experts = {};  // strips and bias are the first one's; linear_skinny only
};

// Two outputs of a lane times two rows of a tile: element 2 * o + r, as in the result of mma.m16n8k32.
inline constexpr int kLaneElements = 4;

QUIRE_DEVICE int lane_output(int lane, int element) {
  return lane / 4 + 8 * (element / 2);
}
QUIRE_DEVICE int lane_row(int lane, int element) {
  return 2 * (lane % 4) + element % 2;
}

// What a lane multiplies of one tile: its part of the B operand, and the scales and sums of its two rows.
template <class F>
struct LaneTile {
  static constexpr int kParts = F::kHalves ? 2 : 1;  // of a block, each with a scale
  std::uint32_t b[2];
  float scale[2];
  std::int32_t start[kParts][2];  // of the integer sums: minus the weights' zero times the activations
  float minima[kParts][2];        // what the weights' minima are multiplied with
};

template <class F, class Thread>
QUIRE_DEVICE LaneTile<F> load_tile(Thread& t, const ActTile& x) {
  LaneTile<F> out{};
  out.b[0] = x.quants[t.lane()][0];
  out.b[1] = x.quants[t.lane()][1];
  // The scales of two rows that lie together.
  const auto rows = load_as<Words4>(reinterpret_cast<const std::byte*>(&x.scales[lane_row(t.lane(), 0)]));
  QUIRE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const std::uint32_t sums = rows.of[2 * r + 1];
    const std::int32_t low = static_cast<std::int16_t>(sums & 0xffffu);
    const std::int32_t high = static_cast<std::int32_t>(sums) >> 16;
    out.scale[r] = float_of_bits(rows.of[2 * r]);
    if constexpr (F::kHalves) {
      out.start[0][r] = -F::kZero * low;
      out.start[1][r] = -F::kZero * high;
      out.minima[0][r] = static_cast<float>(-32 * low);
      out.minima[1][r] = static_cast<float>(-32 * high);
    } else {
      out.start[0][r] = -F::kZero * (low + high);
      out.minima[0][r] = out.scale[r] * static_cast<float>(low + high);
    }
  }
  return out;
}

// acc += one block of 32 features times one tile. s: of the lane's two outputs.
template <class F, class Thread>
QUIRE_DEVICE void multiply_tile(Thread& t, const std::uint32_t (&a)[4], const OutputScales (&s)[2],
                                const LaneTile<F>& x, float (&acc)[kLaneElements]) {
  std::int32_t sum[kLaneElements];
  for (int i = 0; i < kLaneElements; ++i)
    sum[i] = x.start[0][i % 2];
  if constexpr (F::kHalves) {
    std::int32_t high[kLaneElements];
    for (int i = 0; i < kLaneElements; ++i)
      high[i] = x.start[1][i % 2];
    t.mma_u8s8_k16(sum, a[0], a[1], x.b[0]);
    t.mma_u8s8_k16(high, a[2], a[3], x.b[1]);
    QUIRE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      const OutputScales& w = s[i / 2];
      float both = __builtin_fmaf(static_cast<float>(high[i]), w.second, static_cast<float>(sum[i]) * w.first);
      if constexpr (F::kScales == ScaleForm::kNibbleHalves) {
        both = __builtin_fmaf(x.minima[0][i % 2], w.minimum[0], both);
        both = __builtin_fmaf(x.minima[1][i % 2], w.minimum[1], both);
      }
      acc[i] = __builtin_fmaf(both, x.scale[i % 2], acc[i]);
    }
  } else {
    t.mma_u8s8_k32(sum, a, x.b);
    QUIRE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      const OutputScales& w = s[i / 2];
      if constexpr (F::kZero == 0) acc[i] = __builtin_fmaf(x.minima[0][i % 2], w.second, acc[i]);
      acc[i] = __builtin_fmaf(static_cast<float>(sum[i]), x.scale[i % 2] * w.first, acc[i]);
    }
  }
}

// Scales, adds bias and what is already there as asked.
QUIRE_DEVICE void write_element(const LinearOutput& args, std::int64_t row, std::int64_t output, float value) {
  if (row >= args.rows || output >= args.outputs) return;
  float* out = args.out + row * args.out_stride + output;
  if (args.scale != 1.0f) value = value * args.scale;
  if (args.bias != nullptr) value = value + args.bias[output];
  if (args.accumulate) value = *out + value;
  *out = value;
}

QUIRE_DEVICE std::int64_t strips_of_depth(const LinearIntArgs& args) {
  return (args.num_blocks + kStripBlocks - 1) / kStripBlocks;
}

}  // namespace quire::gpu
