// norm_quantise: makes the rows that a product multiplies (as they are, RMSNorm, SwiGLU), rounds them to int8 with a
// scale per 32 and puts them into ActTiles. One block of 256 threads a row.
// Invariant: the order of a row's sums depends on its length alone.
#pragma once

#include "kernels/gpu/act_tiles.h"
#include "kernels/gpu/kernels/elementary.h"
#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

enum class RowForm : std::uint8_t { kPlain, kNormed, kGated };

struct NormQuantiseArgs {
  const float* x = nullptr;
  std::int64_t stride = 0;
  std::int64_t depth = 0;  // features of a made row, a multiple of 32; gated rows are twice as long
  const float* norm_weight = nullptr;
  float eps = 0.0f;
  const std::int32_t* order = nullptr;  // [depth] which value of a made row comes at a place; null: its own
  ActTile* tiles = nullptr;             // [depth / 32][tile_stride]
  std::int64_t tile_stride = 0;
  ExpertRows experts = {};  // rows by place, each expert's in tiles of its own
};

// The sum over a block of 256 threads: a tree in each warp, then the warps in order.
template <class Thread>
QUIRE_DEVICE float block_sum(Thread& t, float value, float* warp_sums) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = value + t.shuffle_xor(value, distance);
  if (t.lane() == 0) warp_sums[t.warp()] = value;
  t.sync_block();
  float sum = warp_sums[0];
  for (int warp = 1; warp < 8; ++warp)
    sum = sum + warp_sums[warp];
  return sum;
}

// One value of a row before it is rounded.
template <RowForm kForm>
struct MadeRow {
  const float* x;
  const NormQuantiseArgs& args;
  const std::int32_t* order;
  float factor;

  QUIRE_DEVICE float at(std::int64_t i) const {
    const std::int64_t k = order == nullptr ? i : order[i];
    if constexpr (kForm == RowForm::kNormed) return of(x[k], args.norm_weight[k]);
    if constexpr (kForm == RowForm::kGated) return of(x[k], x[args.depth + k]);
    return x[k];
  }
  // Of a row's value, and of the norm's weight or of what is gated.
  QUIRE_DEVICE float of(float value, float second) const {
    if constexpr (kForm == RowForm::kNormed) return value * factor * second;
    if constexpr (kForm == RowForm::kGated) return silu_of(value) * second;
    return value;
  }
};

template <RowForm kForm>
struct NormQuantise {
  using Args = NormQuantiseArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kForm == RowForm::kNormed ? 8 * sizeof(float) : 0;

  template <class Thread>
  static QUIRE_DEVICE float factor_of(Thread& t, const Args& args, const float* x) {
    float sum = 0.0f;
    for (std::int64_t base = 4 * t.index(); base < args.depth; base += 4 * kThreads) {
      for (std::int64_t i = base; i < base + 4 && i < args.depth; ++i)
        sum = __builtin_fmaf(x[i], x[i], sum);
    }
    sum = block_sum(t, sum, reinterpret_cast<float*>(t.shared()));
    return 1.0f / __builtin_sqrtf(sum / static_cast<float>(args.depth) + args.eps);
  }

  // Eight lanes hold the 32 values of a block, four each. tile: null for lanes behind the row's end.
  template <class Thread>
  static QUIRE_DEVICE void quantise(Thread& t, const float (&value)[4], std::int64_t row, ActTile* tile) {
    float bound = 0.0f;
    for (const float v : value) {
      const float magnitude = v < 0.0f ? -v : v;
      bound = bound > magnitude ? bound : magnitude;
    }
    for (int distance = 4; distance > 0; distance /= 2) {
      const float other = t.shuffle_xor(bound, distance);
      bound = bound > other ? bound : other;
    }
    const float inverse = bound > 1e-30f ? 127.0f / bound : 0.0f;  // below, 127 / bound could overflow
    std::uint32_t word = 0;
    int sum = 0;
    for (int i = 0; i < 4; ++i) {
      const float scaled = value[i] * inverse;
      const float above = scaled > -127.0f ? scaled : -127.0f;  // a NaN becomes -127
      const int quant = static_cast<int>(round_even(above < 127.0f ? above : 127.0f));
      word |= static_cast<std::uint32_t>(quant & 255) << (8 * i);
      sum += quant;
    }
    for (int distance = 1; distance < 4; distance *= 2)
      sum += t.shuffle_xor(sum, distance);  // of each half of the block
    const int high_sum = t.shuffle_xor(sum, 4);
    if (tile == nullptr) return;
    const int part = t.lane() % 8;
    const auto place = static_cast<int>(row % kTileRows);
    tile->quants[4 * place + part % 4][part / 4] = word;
    if (part == 0)
      tile->scales[place] = {bound / 127.0f, static_cast<std::int16_t>(sum), static_cast<std::int16_t>(high_sum)};
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = args.experts.tile_row(t.block_x());
    const float* x = args.x + args.experts.source(t.block_x()) * args.stride;
    float factor = 1.0f;
    if constexpr (kForm == RowForm::kNormed) factor = factor_of(t, args, x);
    const MadeRow<kForm> made{x, args, args.experts.order(t.block_x(), args.order), factor};
    ActTile* tiles = args.tiles + row / kTileRows;
    // A warp goes round as one, so that all its lanes meet in the shuffles.
    for (std::int64_t first = 4 * kWarpLanes * t.warp(); first < args.depth; first += 4 * kThreads) {
      const std::int64_t at = first + 4 * t.lane();
      const bool inside = at < args.depth;
      float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      for (int i = 0; i < 4 && inside; ++i)
        value[i] = made.at(at + i);
      quantise(t, value, row, inside ? tiles + at / 32 * args.tile_stride : nullptr);
    }
  }
};

}  // namespace quire::gpu
