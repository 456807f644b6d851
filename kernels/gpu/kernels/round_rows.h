// round_rows: makes the rows that a product multiplies (as they are, RMSNorm, SwiGLU), rounds them to bf16 or f16 and
// puts them into HalfTiles. Rows of f16 are first multiplied by a power of two of their own, which takes their largest
// magnitude to [2^14, 2^15): nothing overflows, and what is 2^28 times smaller still has all its bits. One block of 256
// threads a row. Invariant: a row's bits depend on that row alone; features beyond the depth are zeros.
#pragma once

#include "kernels/element_type.h"
#include "kernels/gpu/half_tiles.h"
#include "kernels/gpu/kernels/kv_cache.h"
#include "kernels/gpu/kernels/norm_quantise.h"

namespace quire::gpu {

struct RoundRowsArgs {
  NormQuantiseArgs made;      // whose tiles are unused
  HalfTile* tiles = nullptr;  // [rows / 8][depth / 32]
  float* scales = nullptr;    // [rows] of f16: what results are multiplied with
};

// 2^14 over the power of two of a magnitude, and the reverse; both are finite and not zero.
struct HalfScale {
  float factor;
  float inverse;
};
QUIRE_DEVICE HalfScale half_scale_of(float magnitude) {
  const std::uint32_t found = bits_of_float(magnitude) >> 23;
  const std::uint32_t exponent = found < 20u ? 20u : found;
  return {float_of_bits((268u - exponent) << 23), float_of_bits((exponent - 14u) << 23)};
}

template <DType kType, class Thread>
QUIRE_DEVICE std::uint16_t half_of(Thread& t, float value) {
  if constexpr (kType == DType::kF16) return t.float_to_half(value);
  return bf16_of(value);
}

template <DType kType, RowForm kForm>
struct RoundRows {
  using Args = RoundRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kEach = 4;  // features of a thread
  static constexpr int kSharedBytes = 2 * kWarps * static_cast<int>(sizeof(float));

  template <class Thread>
  static QUIRE_DEVICE float largest(Thread& t, const MadeRow<kForm>& made, std::int64_t depth, float* warp_maxima) {
    float mine = 0.0f;
    for (std::int64_t i = t.index(); i < depth; i += kThreads) {
      const float value = made.at(i);
      const float magnitude = value < 0.0f ? -value : value;
      mine = mine > magnitude ? mine : magnitude;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other = t.shuffle_xor(mine, distance);
      mine = mine > other ? mine : other;
    }
    if (t.lane() == 0) warp_maxima[t.warp()] = mine;
    t.sync_block();
    for (int warp = 0; warp < kWarps; ++warp)
      mine = mine > warp_maxima[warp] ? mine : warp_maxima[warp];
    return mine;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const ExpertRows& experts = args.made.experts;
    const std::int64_t row = experts.tile_row(t.block_x());
    const std::int64_t depth = args.made.depth;
    auto* shared = reinterpret_cast<float*>(t.shared());
    const float* x = args.made.x + experts.source(t.block_x()) * args.made.stride;
    float norm = 1.0f;
    if constexpr (kForm == RowForm::kNormed) norm = NormQuantise<kForm>::factor_of(t, args.made, x);
    const MadeRow<kForm> made{x, args.made, experts.order(t.block_x(), args.made.order), norm};
    float factor = 1.0f;
    if constexpr (kType == DType::kF16) {
      const HalfScale scale = half_scale_of(largest(t, made, depth, shared + kWarps));
      factor = scale.factor;
      if (t.index() == 0) args.scales[row] = scale.inverse;
    }
    const std::int64_t num_blocks = (depth + kHalfBlock - 1) / kHalfBlock;
    HalfTile* tiles = args.tiles + row / kHalfRows * num_blocks;
    for (std::int64_t at = kEach * t.index(); at < num_blocks * kHalfBlock; at += kEach * kThreads) {
      std::uint32_t words[2] = {0u, 0u};
      QUIRE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const float value = at + i < depth ? made.at(at + i) * factor : 0.0f;
        words[i / 2] |= static_cast<std::uint32_t>(half_of<kType>(t, value)) << (16 * (i % 2));
      }
      auto* to = reinterpret_cast<std::uint32_t*>(&tiles[at / kHalfBlock].values[row % kHalfRows][at % kHalfBlock]);
      to[0] = words[0];
      to[1] = words[1];
    }
  }
};

}  // namespace quire::gpu
