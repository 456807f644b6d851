// Matrix products with F32, F16, BF16 and E4M3 weights: f32 activations, one fused multiply-add per input feature in
// order; a weight E4M3 is first multiplied with its scale. Any thread. Included by an ISA level's file behind
// gemm_int_impl.h; everything here has internal linkage. Invariant: one row's arithmetic is a single chain over the
// depth, the same in every register block.
#pragma once

#include "kernels/cpu/products/gemm_int_impl.h"

namespace quire {
namespace {

// kDepth input features of a panel are stored together, kVec picks the vector of columns.
struct WeightF32 {
  static constexpr std::size_t kBytes = 4;
  static constexpr int kDepth = 1;
  [[gnu::always_inline]] static void load(const std::byte* p, int vec, typename Columns::F* out) {
    out[0] = Columns::load(reinterpret_cast<const float*>(p) + vec * Columns::kLanes);
  }
};
struct WeightF16 {
  static constexpr std::size_t kBytes = 2;
  static constexpr int kDepth = 1;
  [[gnu::always_inline]] static void load(const std::byte* p, int vec, typename Columns::F* out) {
    out[0] = Columns::load_f16(halves(p) + vec * Columns::kLanes);
  }
};
// Pairs of features side by side, as the tiles of AMX want them.
struct WeightBF16 {
  static constexpr std::size_t kBytes = 2;
  static constexpr int kDepth = 2;
  [[gnu::always_inline]] static void load(const std::byte* p, int vec, typename Columns::F* out) {
    Columns::load_bf16_pairs(p + vec * Columns::kLanes * 4, out);
  }
};

template <class W, int kRows, int kPanels>
[[gnu::always_inline]] inline void float_block(const GemmArgs& args, std::int64_t panel, const float* x,
                                               std::int64_t x_stride, std::int64_t row, std::int64_t valid_rows) {
  using F = typename Columns::F;
  F acc[kPanels][kVecs][kRows];
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVecs; ++v) {
      for (int r = 0; r < kRows; ++r)
        acc[p][v][r] = Columns::zero();
    }
  }
  const std::byte* w = args.weights + static_cast<std::size_t>(panel) * args.panel_bytes;
  for (std::int64_t k = 0; k < args.depth; k += W::kDepth) {
    for (int p = 0; p < kPanels; ++p) {
      F weight[kVecs][W::kDepth];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v)
        W::load(w + static_cast<std::size_t>(p) * args.panel_bytes, v, weight[v]);
#pragma GCC unroll 2
      for (int i = 0; i < W::kDepth; ++i) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const F activation = Columns::set1(x[i * x_stride + r]);
#pragma GCC unroll 4
          for (int v = 0; v < kVecs; ++v)
            acc[p][v][r] = Columns::fma(weight[v][i], activation, acc[p][v][r]);
        }
      }
    }
    w += kPanelCols * W::kDepth * W::kBytes;
    x += W::kDepth * x_stride;
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVecs; ++v) {
      for (int r = 0; r < kRows && r < valid_rows; ++r) {
        write_out(args, row + r, (panel + p) * kPanelCols + v * Columns::kLanes, acc[p][v][r]);
      }
    }
  }
}

// E4M3 with a scale per 128 features: two features of a panel at a time.
struct WeightF8 : Packed<DType::kF8> {
  static constexpr int kFeatures = kGroups * kQuantBlock;
};

template <int kPanels>
struct ScalesF8 {
  typename Columns::F of[kPanels][kVecs];
  void load(const GemmArgs& args, const std::byte* meta) {
    for (int p = 0; p < kPanels; ++p) {
      const auto* from = reinterpret_cast<const float*>(meta + static_cast<std::size_t>(p) * args.panel_bytes);
      for (int v = 0; v < kVecs; ++v)  // E4M3 is loaded as 256th parts
        of[p][v] = Columns::mul(Columns::load(from + v * Columns::kLanes), Columns::set1(256.0f));
    }
  }
};

// Two features of 16 columns, not scaled: [feature][vector].
[[gnu::always_inline]] inline void load_two_features(const std::byte* from, typename Columns::F* out) {
  for (int i = 0; i < kVecs; ++i)
    Columns::load_both_e4m3(octets(from) + 2 * Columns::kLanes * i, out + 2 * i);
}

template <int kRows, int kPanels>
[[gnu::always_inline]] inline void f8_block(const GemmArgs& args, std::int64_t panel, const float* x,
                                            std::int64_t x_stride, std::int64_t row, std::int64_t valid_rows) {
  using F = typename Columns::F;
  F acc[kPanels][kVecs][kRows];
  for (auto& of_panel : acc) {
    for (auto& of_vec : of_panel) {
      for (F& sum : of_vec)
        sum = Columns::zero();
    }
  }
  const std::byte* meta = args.weights + static_cast<std::size_t>(panel) * args.panel_bytes;
  const std::byte* quants = meta + args.quants_offset;
  ScalesF8<kPanels> scales;
  for (std::int64_t k = 0; k < args.depth; k += 2, quants += 2 * kPanelCols, x += 2 * x_stride) {
    if (k % WeightF8::kFeatures == 0) {
      scales.load(args, meta);
      meta += WeightF8::kHeader;
    }
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* from = quants + static_cast<std::size_t>(p) * args.panel_bytes;
      if (k % 4 == 0) __builtin_prefetch(from + kPrefetch);
      F weights[2 * kVecs];
      load_two_features(from, weights);
      for (int i = 0; i < 2 * kVecs; ++i) {
        const int v = i % kVecs;
        const F weight = Columns::mul(weights[i], scales.of[p][v]);
        for (int r = 0; r < kRows; ++r)
          acc[p][v][r] = Columns::fma(weight, Columns::set1(x[i / kVecs * x_stride + r]), acc[p][v][r]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVecs; ++v) {
      for (int r = 0; r < kRows && r < valid_rows; ++r)
        write_out(args, row + r, (panel + p) * kPanelCols + v * Columns::kLanes, acc[p][v][r]);
    }
  }
}

template <class W, int kRows, int kPanels>
void float_rows(const GemmArgs& args, std::int64_t panel, const float* x, std::int64_t x_stride, std::int64_t row,
                std::int64_t valid_rows) {
  if constexpr (__is_same(W, WeightF8)) {
    f8_block<kRows, kPanels>(args, panel, x, x_stride, row, valid_rows);
  } else {
    float_block<W, kRows, kPanels>(args, panel, x, x_stride, row, valid_rows);
  }
}

template <class W, int kPanels>
void float_tile(const GemmArgs& args, std::int64_t panel, std::int64_t tile) {
  const std::int64_t row = tile * kRowTile;
  const std::int64_t left = args.rows - row;
  const std::int64_t valid = left < kRowTile ? left : kRowTile;
  const std::int64_t padded = padded_tile_rows(valid);
  const float* x = args.floats + row * padded_depth(args.depth);
  // Many rows need the registers that few rows spend on panels.
  constexpr int kPair = kPanels > Columns::kFloatPanels ? Columns::kFloatPanels : kPanels;
  const std::int64_t step = padded < Columns::kFloatRows ? padded : Columns::kFloatRows;
  for (std::int64_t r = 0; r < valid; r += step) {
    const std::int64_t rest = valid - r;
    if (rest == 1) {
      float_rows<W, 1, kPanels>(args, panel, x + r, padded, row + r, rest);
    } else if (rest == 2) {
      float_rows<W, 2, kPanels>(args, panel, x + r, padded, row + r, rest);
    } else {
      for (std::int64_t p = 0; p < kPanels; p += kPair) {
        if (step == 4) {
          float_rows<W, 4, kPair>(args, panel + p, x + r, padded, row + r, rest);
        } else {
          float_rows<W, Columns::kFloatRows, kPair>(args, panel + p, x + r, padded, row + r, rest);
        }
      }
    }
  }
}

template <class W>
void gemm_float(const GemmArgs& args, const GemmRange& range, std::byte* /*scratch*/) {
  for (std::int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    std::int64_t panel = range.panel_begin;
    for (; panel + Columns::kFloatTilePanels <= range.panel_end; panel += Columns::kFloatTilePanels)
      float_tile<W, Columns::kFloatTilePanels>(args, panel, tile);
    for (; panel < range.panel_end; ++panel)
      float_tile<W, 1>(args, panel, tile);
  }
}

// The padding is zeros, so that pairs of an odd depth are whole.
void spread_row(const float* x, std::int64_t depth, std::int64_t tile_rows, float* out) {
  for (std::int64_t k = 0; k < depth; ++k)
    out[k * tile_rows] = x[k];
  for (std::int64_t k = depth; k < padded_depth(depth); ++k)
    out[k * tile_rows] = 0.0f;
}

}  // namespace
}  // namespace quire
