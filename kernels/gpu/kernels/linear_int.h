// What the products of quantised weights with int8 activations have in common: the sums of one block are exact
// integers, scaled into f32 as on the CPU level avx512; sums over kDepthCut features each are added in order.
// Invariant: an element's chain depends on its row and its output alone, so that linear_skinny and linear_wide give the
// same bits, whatever rows come together.
#pragma once

#include "kernels/gpu/act_tiles.h"
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
};

struct LinearIntArgs {
  const std::byte* strips = nullptr;  // [outputs / 16][strips of the depth]
  const ActTile* tiles = nullptr;     // [rows / 8][num_blocks]
  std::int64_t num_blocks = 0;        // of the depth
  LinearOutput output;
};

// Two outputs of a lane times two rows of a tile: element 2 * o + r, as in the result of mma.m16n8k32.
inline constexpr int kLaneElements = 4;

QUIRE_DEVICE int lane_output(int lane, int element) {
  return lane / 4 + 8 * (element / 2);
}
QUIRE_DEVICE int lane_row(int lane, int element) {
  return 2 * (lane % 4) + element % 2;
}

// acc += one block of 32 features times one tile. s: of the lane's two outputs.
template <class F, class Thread>
QUIRE_DEVICE void multiply_tile(Thread& t, const std::uint32_t (&a)[4], const OutputScales (&s)[2], const ActTile& x,
                                float (&acc)[kLaneElements]) {
  const std::uint32_t b[2] = {x.quants[t.lane()][0], x.quants[t.lane()][1]};
  const ActScale of_row[2] = {x.scales[lane_row(t.lane(), 0)], x.scales[lane_row(t.lane(), 1)]};
  std::int32_t sum[kLaneElements];
  if constexpr (F::kHalves) {
    std::int32_t high[kLaneElements];
    for (int i = 0; i < kLaneElements; ++i) {
      sum[i] = -F::kZero * of_row[i % 2].low_sum;
      high[i] = -F::kZero * of_row[i % 2].high_sum;
    }
    t.mma_u8s8_k16(sum, a[0], a[1], b[0]);
    t.mma_u8s8_k16(high, a[2], a[3], b[1]);
    QUIRE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      const OutputScales& w = s[i / 2];
      const ActScale& r = of_row[i % 2];
      float both = __builtin_fmaf(static_cast<float>(high[i]), w.second, static_cast<float>(sum[i]) * w.first);
      if constexpr (F::kScales == ScaleForm::kNibbleHalves) {
        both = __builtin_fmaf(static_cast<float>(-32 * r.low_sum), w.minimum[0], both);
        both = __builtin_fmaf(static_cast<float>(-32 * r.high_sum), w.minimum[1], both);
      }
      acc[i] = __builtin_fmaf(both, r.scale, acc[i]);
    }
  } else {
    for (int i = 0; i < kLaneElements; ++i)
      sum[i] = -F::kZero * (of_row[i % 2].low_sum + of_row[i % 2].high_sum);
    t.mma_u8s8_k32(sum, a, b);
    QUIRE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      const OutputScales& w = s[i / 2];
      const ActScale& r = of_row[i % 2];
      if constexpr (F::kZero == 0) {
        const float total = r.scale * static_cast<float>(r.low_sum + r.high_sum);
        acc[i] = __builtin_fmaf(total, w.second, acc[i]);
      }
      acc[i] = __builtin_fmaf(static_cast<float>(sum[i]), r.scale * w.first, acc[i]);
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
