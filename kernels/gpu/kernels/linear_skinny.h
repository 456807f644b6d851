// linear_skinny: quantised weights times few rows. A block has 16 outputs and up to 8 * kTiles rows; its four warps
// take cuts of the depth in turn and read each strip once, through a ring of four stages that asynchronous copies fill.
// Grid: x outputs / 16, y rows / (8 * kTiles), or items of experts, each of at most so many rows.
#pragma once

#include "kernels/gpu/kernels/cut_sums.h"

namespace quire::gpu {

template <DType kType, int kTiles>
struct LinearSkinny {
  using Args = LinearIntArgs;
  using F = Form<kType>;
  using Sums = CutSums<kTiles>;
  static constexpr int kWarps = Sums::kWarps;
  static constexpr int kThreads = Sums::kThreads;
  static constexpr int kStages = 4;
  static constexpr int kStripBytes = F::kLayout.bytes;
  static constexpr int kRingBytes = kWarps * kStages * kStripBytes;
  static constexpr int kSharedBytes = kRingBytes + Sums::kBytes;

  // The strips that a warp takes in turn: cuts warp, warp + 4, ...
  struct WarpStrips {
    const std::byte* from;
    std::byte* ring;
    std::int64_t count;  // of the depth
    int warp;

    QUIRE_DEVICE std::int64_t strip(std::int64_t turn) const {
      return (turn / kCutStrips * kWarps + warp) * kCutStrips + turn % kCutStrips;
    }
    QUIRE_DEVICE std::byte* stage(std::int64_t turn) const { return ring + turn % kStages * kStripBytes; }
  };

  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const WarpStrips& strips, std::int64_t turn) {
    const std::int64_t strip = strips.strip(turn);
    if (strip < strips.count) {
      const std::byte* from = strips.from + strip * kStripBytes;
      for (int at = 16 * t.lane(); at < kStripBytes; at += 16 * kWarpLanes)
        t.copy_async(strips.stage(turn) + at, from + at);
    }
    t.commit_copies();
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply_strip(Thread& t, const Args& args, const std::byte* strip, std::int64_t first_block,
                                          std::int64_t first_tile, float (&acc)[kTiles][kLaneElements]) {
    const std::int64_t num_tiles = (args.output.rows + kTileRows - 1) / kTileRows;
    LaneCodes<F> codes{};
    QUIRE_UNROLL
    for (int block = 0; block < kStripBlocks; ++block) {
      if (first_block + block >= args.num_blocks) break;
      codes.load(strip + F::kLayout.scale_bytes, t.lane(), block);
      std::uint32_t a[4];
      operand_of(t, codes, block, a);
      const OutputScales s[2] = {scales_of<F>(t, strip, block, lane_output(t.lane(), 0)),
                                 scales_of<F>(t, strip, block, lane_output(t.lane(), 2))};
      const ActTile* x = args.tiles + first_tile * args.num_blocks + first_block + block;
      QUIRE_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        if (first_tile + tile < num_tiles)
          multiply_tile<F>(t, a, s, load_tile<F>(t, x[tile * args.num_blocks]), acc[tile]);
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    Args own = args;
    std::int64_t first_tile = static_cast<std::int64_t>(t.block_y()) * kTiles;
    if (args.experts.items != nullptr) {
      const ExpertItem item = args.experts.items[t.block_y()];
      if (item.rows == 0) return;
      own.strips += args.experts.weights[item.expert].weights;
      own.tiles += item.first_tile * args.num_blocks;
      own.output.narrow_to(item, args.experts.weights[item.expert]);
      first_tile = 0;
    }
    multiply(t, own, first_tile);
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply(Thread& t, const Args& args, std::int64_t first_tile) {
    const std::int64_t group = t.block_x();
    const std::int64_t num_strips = strips_of_depth(args);
    const std::int64_t num_cuts = (num_strips + kCutStrips - 1) / kCutStrips;
    const WarpStrips strips{args.strips + group * num_strips * kStripBytes,
                            t.shared() + t.warp() * kStages * kStripBytes, num_strips, t.warp()};
    Sums sums(reinterpret_cast<float*>(t.shared() + kRingBytes));
    for (int turn = 0; turn < kStages - 1; ++turn)
      fetch(t, strips, turn);
    std::int64_t turn = 0;
    for (std::int64_t cut = 0; cut < num_cuts; cut += kWarps) {
      float acc[kTiles][kLaneElements] = {};
      for (int i = 0; i < kCutStrips; ++i, ++turn) {
        t.template wait_copies<kStages - 2>();
        t.sync_warp();  // all lanes' copies have landed, and all have read the stage that is filled next
        fetch(t, strips, turn + kStages - 1);
        const std::int64_t strip = strips.strip(turn);
        if (strip < num_strips) multiply_strip(t, args, strips.stage(turn), strip * kStripBlocks, first_tile, acc);
      }
      sums.add(t, acc, cut, num_cuts);
    }
    for (int i = 0; i < kTiles; ++i)
      write_element(args.output, first_tile * kTileRows + sums.row(t, i), group * kStripOutputs + sums.output(t, i),
                    sums.total[i]);
  }
};

}  // namespace quire::gpu
