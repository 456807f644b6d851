// norm_quantise: makes the rows that a product multiplies (as they are, RMSNorm, SwiGLU), rounds them to int8 with a
// scale per 32 and puts them into ActTiles. Blocks of 256 threads; grid: x rows, y pieces of a row. Each block of a
// normed row sums its squares itself. Invariant: the order of a row's sums depends on its length alone.
#pragma once

#include "kernels/gpu/kernels/elementary.h"
#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/fours.h"
#include "kernels/gpu/kernels/portable.h"
#include "kernels/gpu/pack/act_tiles.h"

namespace quire::gpu {

enum class RowForm : std::uint8_t { kPlain, kNormed, kGated };

inline constexpr int kMadeThreads = 256;
inline constexpr int kMadeSweep = kFour * kMadeThreads;  // features that a block's threads hold at once

// Features of a row for each block: few rows are spread over blocks.
constexpr std::int64_t made_piece(std::int64_t rows, std::int64_t depth) {
  constexpr std::int64_t kFewRows = 64;
  return rows <= kFewRows ? kMadeSweep : (depth + kMadeSweep - 1) / kMadeSweep * kMadeSweep;
}

struct NormQuantiseArgs {
  const float* x = nullptr;
  std::int64_t stride = 0;
  std::int64_t depth = 0;  // features of a made row, a multiple of 32; gated rows are twice as long
  std::int64_t piece = 0;  // features for each block, a multiple of kMadeSweep
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

// The factor of a row that is normed. Each of 256 threads sums fours in turn.
template <class Thread>
QUIRE_DEVICE float norm_factor(Thread& t, const NormQuantiseArgs& args, const float* x, float* warp_sums) {
  constexpr int kBatch = 4;  // fours that are loaded before they are summed
  const auto depth = static_cast<int>(args.depth);
  const bool at_once = lies_in_fours(x, depth);
  float sum = 0.0f;
  for (int base = kFour * t.index(); base < depth; base += kBatch * kMadeSweep) {
    Four values[kBatch];
    QUIRE_UNROLL
    for (int j = 0; j < kBatch; ++j)
      values[j] = load_four(x, base + j * kMadeSweep, depth, at_once);
    QUIRE_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      for (const float value : values[j].of)
        sum = __builtin_fmaf(value, value, sum);  // zeros past the end change nothing
    }
  }
  sum = block_sum(t, sum, warp_sums);
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(args.depth) + args.eps);
}

// The norm's weights of a thread's first four, which are loaded before the kernels before have ended.
struct WeightsAhead {
  int at = -1;  // none
  Four values{};

  QUIRE_DEVICE void load(const NormQuantiseArgs& args, int first) {
    const auto depth = static_cast<int>(args.depth);
    if (args.order != nullptr || first >= depth) return;
    values = load_four(args.norm_weight, first, depth, lies_in_fours(args.norm_weight, depth));
    at = first;
  }
};

// A row before it is rounded.
template <RowForm kForm>
struct MadeRow {
  const float* x;
  const float* second;  // the norm's weights, or the gated factor
  const std::int32_t* order;
  int depth;
  bool at_once;  // fours can be loaded directly
  float factor = 1.0f;
  WeightsAhead ahead{};

  QUIRE_DEVICE MadeRow(const NormQuantiseArgs& args, const float* row, const std::int32_t* row_order)
      : x(row),
        second(kForm == RowForm::kGated ? row + args.depth : args.norm_weight),
        order(row_order),
        depth(static_cast<int>(args.depth)),
        at_once(lies_in_fours(x, depth) && (kForm == RowForm::kPlain || lies_in_fours(second, depth))) {}

  // Combines a row's value with the norm's weight or with the gated value.
  QUIRE_DEVICE float of(float value, float with) const {
    if constexpr (kForm == RowForm::kNormed) return value * factor * with;
    if constexpr (kForm == RowForm::kGated) return silu_of(value) * with;
    return value;
  }
  // Values [at, at + 4), zeros behind the row's end.
  QUIRE_DEVICE Four make(int at) const {
    if (at >= depth) return {};
    Four out{};
    if (order != nullptr) {
      QUIRE_UNROLL
      for (int i = 0; i < kFour; ++i) {
        if (at + i < depth) out.of[i] = of(x[order[at + i]], kForm == RowForm::kPlain ? 0.0f : second[order[at + i]]);
      }
      return out;
    }
    const Four values = load_four(x, at, depth, at_once);
    Four with{};
    if constexpr (kForm == RowForm::kNormed)
      with = at == ahead.at ? ahead.values : load_four(second, at, depth, at_once);
    if constexpr (kForm == RowForm::kGated) with = load_four(second, at, depth, at_once);
    QUIRE_UNROLL
    for (int i = 0; i < kFour; ++i)
      out.of[i] = of(values.of[i], with.of[i]);
    return out;
  }
};

template <RowForm kForm>
struct NormQuantise {
  using Args = NormQuantiseArgs;
  static constexpr int kThreads = kMadeThreads;
  static constexpr int kBlocks = 4;  // on a multiprocessor
  static constexpr int kSharedBytes = kForm == RowForm::kNormed ? 8 * sizeof(float) : 0;
  static constexpr bool kBeginsEarly = kForm == RowForm::kNormed;

  // Eight lanes hold the 32 values of a block, four each. tile: null for lanes behind the row's end.
  template <class Thread>
  static QUIRE_DEVICE void quantise(Thread& t, const Four& values, std::int64_t row, ActTile* tile) {
    float bound = 0.0f;
    for (const float v : values.of) {
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
      const float scaled = values.of[i] * inverse;
      const float above = scaled > -127.0f ? scaled : -127.0f;  // a NaN becomes -127
      const int quant = static_cast<int>(round_even(above < 127.0f ? above : 127.0f));
      word |= static_cast<std::uint32_t>(quant & 255) << (8 * i);
      sum += quant;
    }
    for (int distance = 1; distance < 4; distance *= 2)
      sum += t.shuffle_xor(sum, distance);  // sum of each half of the block
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
    const auto begin = static_cast<int>(t.block_y() * args.piece);
    WeightsAhead ahead;
    if constexpr (kBeginsEarly) {
      ahead.load(args, begin + kFour * t.index());
      t.wait_for_kernels();
    }
    const std::int64_t row = args.experts.tile_row(t.block_x());
    MadeRow<kForm> made(args, args.x + args.experts.source(t.block_x()) * args.stride,
                        args.experts.order(t.block_x(), args.order));
    if constexpr (kForm == RowForm::kNormed) {
      made.ahead = ahead;
      made.factor = norm_factor(t, args, made.x, reinterpret_cast<float*>(t.shared()));
    }
    ActTile* tiles = args.tiles + row / kTileRows;
    const int end =
        begin + static_cast<int>(args.piece) < made.depth ? begin + static_cast<int>(args.piece) : made.depth;
    // A warp iterates as one, so that all its lanes meet in the shuffles.
    for (int first = begin + kFour * kWarpLanes * t.warp(); first < end; first += kMadeSweep) {
      const int at = first + kFour * t.lane();
      quantise(t, made.make(at), row, at < end ? tiles + at / 32 * args.tile_stride : nullptr);
    }
  }
};

}  // namespace quire::gpu
