// round_rows: makes the rows that a product multiplies (plain, RMSNorm, SwiGLU), rounds them to bf16 or f16 and puts
// them into HalfTiles. Rows of f16 are first multiplied by a power of two of their own, which takes their largest
// magnitude to [2^14, 2^15): no value overflows, and values 2^28 times smaller still have all their bits. Grid as
// norm_quantise's: each block of a row of f16 finds its largest magnitude itself. Invariant: a row's bits depend on
// that row alone; features beyond the depth are zeros.
#pragma once

#include "kernels/formats/element_type.h"
#include "kernels/gpu/kernels/kv_cache.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/gpu/pack/half_tiles.h"

namespace quire::gpu {

struct RoundRowsArgs {
  NormQuantiseArgs made;      // its tiles are unused
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
  static constexpr int kThreads = kMadeThreads;
  static constexpr int kBlocks = 4;  // on a multiprocessor
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kBatch = 4;  // fours that a thread makes before it writes
  static constexpr int kSharedBytes = 2 * kWarps * static_cast<int>(sizeof(float));
  static constexpr bool kBeginsEarly = kForm == RowForm::kNormed;

  // Fours of a thread, a sweep apart.
  struct Batch {
    Four fours[kBatch];

    QUIRE_DEVICE Batch(const MadeRow<kForm>& made, int first, int end) {
      QUIRE_UNROLL
      for (int j = 0; j < kBatch; ++j)
        fours[j] = first + j * kMadeSweep < end ? made.make(first + j * kMadeSweep) : Four{};
    }
  };

  template <class Thread>
  static QUIRE_DEVICE float largest(Thread& t, const MadeRow<kForm>& made, float* warp_maxima) {
    float mine = 0.0f;
    for (int first = kFour * t.index(); first < made.depth; first += kBatch * kMadeSweep) {
      const Batch batch(made, first, made.depth);
      QUIRE_UNROLL
      for (const Four& four : batch.fours) {
        for (const float value : four.of) {
          const float magnitude = value < 0.0f ? -value : value;
          mine = mine > magnitude ? mine : magnitude;
        }
      }
    }
    mine = warp_largest(t, mine);
    if (t.lane() == 0) warp_maxima[t.warp()] = mine;
    t.sync_block();
    for (int warp = 0; warp < kWarps; ++warp)
      mine = mine > warp_maxima[warp] ? mine : warp_maxima[warp];
    return mine;
  }

  template <class Thread>
  static QUIRE_DEVICE void write(Thread& t, const Four& values, float factor, std::byte* to) {
    std::uint32_t words[2] = {0u, 0u};
    QUIRE_UNROLL
    for (int i = 0; i < kFour; ++i)
      words[i / 2] |= static_cast<std::uint32_t>(half_of<kType>(t, values.of[i] * factor)) << (16 * (i % 2));
    reinterpret_cast<std::uint32_t*>(to)[0] = words[0];
    reinterpret_cast<std::uint32_t*>(to)[1] = words[1];
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const auto begin = static_cast<int>(t.block_y() * args.made.piece);
    WeightsAhead ahead;
    if constexpr (kBeginsEarly) {
      ahead.load(args.made, begin + kFour * t.index());
      t.wait_for_kernels();
    }
    const ExpertRows& experts = args.made.experts;
    const std::int64_t row = experts.tile_row(t.block_x());
    auto* shared = reinterpret_cast<float*>(t.shared());
    MadeRow<kForm> made(args.made, args.made.x + experts.source(t.block_x()) * args.made.stride,
                        experts.order(t.block_x(), args.made.order));
    if constexpr (kForm == RowForm::kNormed) {
      made.ahead = ahead;
      made.factor = norm_factor(t, args.made, made.x, shared);
    }
    float factor = 1.0f;
    if constexpr (kType == DType::kF16) {
      const HalfScale scale = half_scale_of(largest(t, made, shared + kWarps));
      factor = scale.factor;
      if (t.index() == 0 && begin == 0) args.scales[row] = scale.inverse;
    }
    const int num_blocks = (made.depth + kHalfBlock - 1) / kHalfBlock;
    auto* tiles =
        reinterpret_cast<std::byte*>(args.tiles + row / kHalfRows * num_blocks) + row % kHalfRows * kHalfRowBytes;
    const int whole = num_blocks * kHalfBlock;
    const int end =
        begin + static_cast<int>(args.made.piece) < whole ? begin + static_cast<int>(args.made.piece) : whole;
    for (int first = begin + kFour * t.index(); first < end; first += kBatch * kMadeSweep) {
      const Batch batch(made, first, end);
      QUIRE_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const int at = first + j * kMadeSweep;
        auto* to = tiles + at / kHalfBlock * static_cast<int>(sizeof(HalfTile)) + 2 * (at % kHalfBlock);
        if (at < end) write(t, batch.fours[j], factor, to);
      }
    }
  }
};

}  // namespace quire::gpu
