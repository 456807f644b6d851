// linear_row and linear_skinny: quantised weights times one row, or few. The warps of a block take cuts of the depth in
// turn and read each strip once, through stages that asynchronous copies fill.
// linear_row: 16 outputs. All columns of the B operand are the one row's, so that the lanes of a quad have the same
// sums: even ones scale those of the first eight outputs, odd ones the others'.
// linear_skinny: 16 * kGroups outputs and up to 8 * kTiles rows.
// Grid: x outputs / (16 * kGroups), y rows / (8 * kTiles), or items of experts, each of at most so many rows.
#pragma once

#include "kernels/gpu/kernels/cut_sums.h"

namespace quire::gpu {

// The strips that one of kWarps warps takes in turn: cuts warp, warp + kWarps, ... of kGroups groups of outputs, in
// stages: the next kStages - 1 are copied while one is multiplied.
template <class F, int kGroups, int kWarps, int kStages>
struct WarpStrips {
  static constexpr int kStripBytes = F::kLayout.bytes;
  static constexpr int kStageBytes = kGroups * kStripBytes;
  static constexpr int kRingBytes = kWarps * kStages * kStageBytes;

  template <class Thread>
  QUIRE_DEVICE WarpStrips(Thread& t, const LinearIntArgs& args, int first_group)
      : count(args.num_strips()),
        stages_(t.shared() + t.warp() * kStages * kStageBytes),
        current_(t.warp() * kCutStrips),
        fetched_(current_) {
    const int last = args.num_groups() - 1;
    for (int g = 0; g < kGroups; ++g) {
      const std::int64_t group = first_group + g < last ? first_group + g : last;
      from_[g] = args.strips + (group * count + fetched_) * kStripBytes;
    }
    QUIRE_UNROLL
    for (int early = 0; early < kStages - 1; ++early)
      fetch(t, early);
  }

  QUIRE_DEVICE int num_cuts() const { return (count + kCutStrips - 1) / kCutStrips; }

  // The next strip of the warp's, `count` or more behind its last one. It lies at weights() until the next call.
  template <class Thread>
  QUIRE_DEVICE int next(Thread& t) {
    t.template wait_copies<kStages - 2>();
    t.sync_warp();  // all lanes' copies have landed, and the refilled stage is read
    fetch(t, stage_);
    stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1;
    const int strip = current_;
    current_ = after(current_);
    return strip;
  }
  QUIRE_DEVICE const std::byte* weights() const { return stages_ + stage_ * kStageBytes; }

  int count;  // strips of the depth

 private:
  static QUIRE_DEVICE int after(int strip) {
    return (strip + 1) % kCutStrips == 0 ? strip + 1 + (kWarps - 1) * kCutStrips : strip + 1;
  }

  template <class Thread>
  QUIRE_DEVICE void fetch(Thread& t, int to_stage) {
    const int next_strip = after(fetched_);
    if (fetched_ < count) {
      QUIRE_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        std::byte* to = stages_ + to_stage * kStageBytes + g * kStripBytes;
        QUIRE_UNROLL
        for (int first = 0; first < kStripBytes; first += 16 * kWarpLanes) {
          const int mine = first + 16 * t.lane();
          if (first + 16 * kWarpLanes <= kStripBytes || mine < kStripBytes) t.copy_async(to + mine, from_[g] + mine);
        }
        from_[g] += (next_strip - fetched_) * kStripBytes;
      }
    }
    t.commit_copies();
    fetched_ = next_strip;
  }

  const std::byte* from_[kGroups];
  std::byte* stages_;
  int current_;
  int fetched_;
  int stage_ = kStages - 1;  // stage of weights(); before: of the first strip
};

template <DType kType, int kWarps, int kMostStages>
struct LinearRow {
  using Args = LinearIntArgs;
  using F = Form<kType>;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr bool kBeginsEarly = true;
  static constexpr int kOfMany = F::kRegisters > 1 ? 4 : F::kRegisters > 0 ? 5 : 7;
  static constexpr int kBlocks = kMostStages == 2 ? kOfMany : kWarps > 8 ? 2 : 8 / kWarps;
  static constexpr int kFitting = (96 << 10) / (kWarps * F::kLayout.bytes);
  using Strips = WarpStrips<F, 1, kWarps, (kMostStages < kFitting ? kMostStages : kFitting)>;
  static constexpr unsigned kTogether = LaneCodes<F>::kTogether > 4 ? LaneCodes<F>::kTogether : 4;
  static constexpr int kSharedBytes = Strips::kRingBytes + kWarps * kStripOutputs * static_cast<int>(sizeof(float));

  static QUIRE_DEVICE int output_of(int lane) { return lane / 4 + 8 * (lane % 2); }

  template <class Thread>
  static QUIRE_DEVICE float multiply_block(Thread& t, LaneCodes<F>& codes, const std::byte* strip, unsigned block,
                                           const ActTile& x, float acc) {
    constexpr int kParts = RowFactors<F>::kParts;
    codes.load(strip + F::kLayout.scale_bytes, t.lane(), block);
    std::uint32_t a[4];
    operand_of(t, codes, block, a);
    const auto b = load_as<Words2>(reinterpret_cast<const std::byte*>(&x.quants[t.lane() % 4]));
    const auto scale = load_as<Words2>(reinterpret_cast<const std::byte*>(&x.scales[0]));
    const RowFactors<F> row = row_factors<F>(t, scale.of[0], scale.of[1]);
    std::int32_t sums[kParts][kLaneElements];
    for (int part = 0; part < kParts; ++part) {
      for (std::int32_t& sum : sums[part])
        sum = row.start[part];
    }
    multiply_codes<F>(t, a, {b.of[0], b.of[1]}, sums);
    std::int32_t mine[kParts];
    for (int part = 0; part < kParts; ++part)
      mine[part] = t.lane() % 2 == 0 ? sums[part][0] : sums[part][2];
    return add_block<F>(mine, scales_of<F>(t, strip, block, output_of(t.lane())), row, acc);
  }

  // kSideBySide: the strip's tiles lie so, since there is one for each block of the depth.
  template <bool kSideBySide, class Thread>
  static QUIRE_DEVICE float multiply_strip(Thread& t, const Args& args, const std::byte* weights, int strip,
                                           float acc) {
    LaneCodes<F> codes{};
    const ActTile* tiles = args.tiles + strip * kStripBlocks;
    QUIRE_ROLLED
    for (unsigned first = 0; first < kStripBlocks; first += kTogether) {
      QUIRE_UNROLL
      for (unsigned block = first; block < first + kTogether; ++block) {
        const ActTile* x = tiles + block;
        if constexpr (!kSideBySide) x = args.tiles_of(static_cast<unsigned>(strip) * kStripBlocks + block);
        acc = multiply_block(t, codes, weights, block, *x, acc);
      }
    }
    return acc;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    Args own = args;
    if (args.experts.items != nullptr) {
      t.wait_for_kernels();
      if (!own.narrow_to_item(t.block_y())) return;
    }
    const auto group = static_cast<int>(t.block_x());
    Strips strips(t, own, group);
    t.wait_for_kernels();  // the weights are prefetched
    float* sums = reinterpret_cast<float*>(t.shared() + Strips::kRingBytes);
    const int num_cuts = strips.num_cuts();
    float total = 0.0f;
    for (int cut = 0; cut < num_cuts; cut += kWarps) {
      float acc = 0.0f;
      for (int i = 0; i < kCutStrips; ++i) {
        const int strip = strips.next(t);
        if (strip >= strips.count) continue;
        if (own.tiles_bytes == sizeof(ActTile) && (strip + 1) * kStripBlocks <= own.num_blocks) {
          acc = multiply_strip<true>(t, own, strips.weights(), strip, acc);
        } else {
          acc = multiply_strip<false>(t, own, strips.weights(), strip, acc);
        }
      }
      if (cut > 0) t.sync_block();  // the previous sums have been read
      if (t.lane() % 4 < 2) sums[t.warp() * kStripOutputs + output_of(t.lane())] = acc;
      t.sync_block();
      for (int warp = 0; warp < kWarps && cut + warp < num_cuts; ++warp) {
        const float part = sums[warp * kStripOutputs + t.index() % kStripOutputs];
        total = cut + warp == 0 ? part : total + part;
      }
    }
    if (t.index() < kStripOutputs) write_element(own.output, 0, group * kStripOutputs + t.index(), total);
  }
};

// Warps for a depth of more than four cuts: as many as registers and stages allow beside another block.
template <DType kType>
using LinearRowDeep =
    LinearRow<kType, (Form<kType>::kRegisters == 0 && Form<kType>::kLayout.bytes <= 3072 ? 14 : 8), 3>;

template <DType kType, int kGroups, int kTiles>
struct LinearSkinny {
  using Args = LinearIntArgs;
  using F = Form<kType>;
  using Sums = CutSums<kTiles>;
  static constexpr int kThreads = Sums::kThreads;
  static constexpr bool kBeginsEarly = true;
  static constexpr int kLight = kTiles <= 2 ? 5 : kGroups > 1 || F::kScales == ScaleForm::kFloatZero ? 3 : 4;
  static constexpr int kHeavy = kTiles == 1 ? 5 - F::kRegisters / 2 : kTiles == 2 ? 3 : 2;
  static constexpr int kBlocks = F::kRegisters > 0 ? kHeavy : kLight;
  // Registers are too few for the loads of all tiles at once.
  static constexpr bool kIsTight = kTiles > 1 && (F::kRegisters > 1 || (F::kRegisters > 0 && kGroups > 1));
  using Strips = WarpStrips<F, kGroups, Sums::kWarps, 2>;
  static constexpr unsigned kAtLeast = kGroups * kTiles == 1 ? 4 : 1;
  static constexpr unsigned kTogether = LaneCodes<F>::kTogether > kAtLeast ? LaneCodes<F>::kTogether : kAtLeast;
  static constexpr int kSharedBytes = Strips::kRingBytes + Sums::kBytes;

  template <class Thread>
  static QUIRE_DEVICE void multiply_strip(Thread& t, const Args& args, const std::byte* weights, int strip,
                                          int first_tile, float (&acc)[kGroups][kTiles][kLaneElements]) {
    const int num_tiles = (static_cast<int>(args.output.rows) + kTileRows - 1) / kTileRows;
    BlockWeights<F, kGroups> w{};
    QUIRE_ROLLED
    for (unsigned first = 0; first < kStripBlocks; first += kTogether) {
      QUIRE_UNROLL
      for (unsigned block = first; block < first + kTogether; ++block) {
        w.load(t, block, [&](int g) { return weights + g * F::kLayout.bytes; });
        const ActTile* x = args.tiles_of(static_cast<unsigned>(strip) * kStripBlocks + block) + first_tile;
        QUIRE_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          if (Thread::moves_loads_up() && kIsTight && first_tile + tile >= num_tiles) break;
          const LaneTile<F> rows = load_tile<F>(t, x[tile]);
          QUIRE_UNROLL
          for (int g = 0; g < kGroups; ++g)
            multiply_tile<F>(t, w.a[g], w.scales[g], rows, acc[g][tile]);
        }
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    Args own = args;
    auto first_tile = static_cast<int>(t.block_y()) * kTiles;
    if (args.experts.items != nullptr) {
      t.wait_for_kernels();
      if (!own.narrow_to_item(t.block_y())) return;
      first_tile = 0;
    }
    const int first_group = static_cast<int>(t.block_x()) * kGroups;
    Strips strips(t, own, first_group);
    t.wait_for_kernels();  // the weights are prefetched
    Sums sums[kGroups];
    float* room = reinterpret_cast<float*>(t.shared() + Strips::kRingBytes);
    const int num_cuts = strips.num_cuts();
    float acc[kGroups][kTiles][kLaneElements] = {};
    for (int cut = 0; cut < num_cuts; cut += Sums::kWarps) {
      for (int i = 0; i < kCutStrips; ++i) {
        const int strip = strips.next(t);
        if (strip < strips.count) multiply_strip(t, own, strips.weights(), strip, first_tile, acc);
      }
      QUIRE_UNROLL
      for (int g = 0; g < kGroups; ++g)
        sums[g].add(t, room, acc[g], cut, num_cuts, cut + g > 0);
    }
    QUIRE_UNROLL
    for (int i = 0; i < kGroups * kTiles; ++i) {
      const Sums& group = sums[i / kTiles];
      write_element(own.output, first_tile * kTileRows + Sums::row(t, i % kTiles),
                    (first_group + i / kTiles) * kStripOutputs + Sums::output(t, i % kTiles), group.total[i % kTiles]);
    }
  }
};

}  // namespace quire::gpu
