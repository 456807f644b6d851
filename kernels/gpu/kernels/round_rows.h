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
  static constexpr int kEach = 4;   // features of a thread
  static constexpr int kBatch = 4;  // times so many that it loads before it writes
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

  // Whether a thread's features can be loaded at once, as they lie.
  static QUIRE_DEVICE bool are_together(const MadeRow<kForm>& made) {
    std::uintptr_t places = reinterpret_cast<std::uintptr_t>(made.x) | static_cast<std::uintptr_t>(4 * made.args.depth);
    if constexpr (kForm == RowForm::kNormed) places |= reinterpret_cast<std::uintptr_t>(made.args.norm_weight);
    return made.order == nullptr && places % sizeof(Words4) == 0;
  }

  static QUIRE_DEVICE void make(const MadeRow<kForm>& made, int at, bool together, float (&values)[kEach]) {
    if (!together) {
      QUIRE_UNROLL
      for (int i = 0; i < kEach; ++i)
        values[i] = at + i < made.args.depth ? made.at(at + i) : 0.0f;
      return;
    }
    const auto four = [](const float* from) { return load_as<Words4>(reinterpret_cast<const std::byte*>(from)); };
    const bool inside = at < made.args.depth;
    const Words4 x = inside ? four(made.x + at) : Words4{};
    Words4 second{};
    if (kForm == RowForm::kNormed && inside) second = four(made.args.norm_weight + at);
    if (kForm == RowForm::kGated && inside) second = four(made.x + made.args.depth + at);
    QUIRE_UNROLL
    for (int i = 0; i < kEach; ++i)
      values[i] = made.of(float_of_bits(x.of[i]), float_of_bits(second.of[i]));
  }

  template <class Thread>
  static QUIRE_DEVICE void write(Thread& t, const float (&values)[kEach], float factor, std::byte* to) {
    std::uint32_t words[2] = {0u, 0u};
    QUIRE_UNROLL
    for (int i = 0; i < kEach; ++i)
      words[i / 2] |= static_cast<std::uint32_t>(half_of<kType>(t, values[i] * factor)) << (16 * (i % 2));
    reinterpret_cast<std::uint32_t*>(to)[0] = words[0];
    reinterpret_cast<std::uint32_t*>(to)[1] = words[1];
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
    const int num_blocks = (static_cast<int>(depth) + kHalfBlock - 1) / kHalfBlock;
    auto* tiles =
        reinterpret_cast<std::byte*>(args.tiles + row / kHalfRows * num_blocks) + row % kHalfRows * kHalfRowBytes;
    const bool together = are_together(made);
    constexpr int kSweep = kEach * kThreads;
    for (int first = kEach * t.index(); first < num_blocks * kHalfBlock; first += kBatch * kSweep) {
      float values[kBatch][kEach];
      QUIRE_UNROLL
      for (int i = 0; i < kBatch; ++i)
        make(made, first + i * kSweep, together, values[i]);
      QUIRE_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int at = first + i * kSweep;
        auto* to = tiles + at / kHalfBlock * static_cast<int>(sizeof(HalfTile)) + 2 * (at % kHalfBlock);
        if (at < num_blocks * kHalfBlock) write(t, values[i], factor, to);
      }
    }
  }
};

}  // namespace quire::gpu
