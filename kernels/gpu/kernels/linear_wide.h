// linear_wide: quantised weights times many rows. A block has 128 outputs and 128 rows; eight warps of 32 outputs times
// 64 rows. Both operands go through shared memory, filled by asynchronous copies: strips of weights in two stages,
// activations in up to three of 64 features. Weights are unpacked once for 64 rows, rows' factors made once for 32
// outputs. Grid: x outputs / 128, y rows / 128.
#pragma once

#include "kernels/gpu/kernels/linear_int.h"

namespace quire::gpu {

template <DType kType>
struct LinearWide {
  using Args = LinearIntArgs;
  using F = Form<kType>;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kStages = F::kLayout.bytes > 4400 ? 2 : 3;
  static constexpr int kStageBlocks = 2;
  static constexpr int kStripSteps = kStripBlocks / kStageBlocks;
  // Registers are too few for the loads of all tiles, or of a strip, at once.
  static constexpr bool kIsTight = F::kRegisters > 0 || F::kScales != ScaleForm::kPair8;
  static constexpr int kTogether = static_cast<int>(LaneCodes<F>::kTogether);
  static constexpr int kLeastTogether = kTogether > kStageBlocks ? kTogether / kStageBlocks : 1;
  static constexpr int kGroups = 2;       // groups of 16 outputs per warp
  static constexpr int kTiles = 8;        // tiles of 8 rows per warp
  static constexpr int kBlockTiles = 16;  // per block
  static constexpr int kBlockGroups = 8;
  static constexpr int kTileBytes = sizeof(ActTile);
  static constexpr int kStageBytes = kBlockTiles * kStageBlocks * kTileBytes;
  static constexpr int kStripBytes = F::kLayout.bytes;
  static constexpr int kStripsBytes = kBlockGroups * kStripBytes;     // bytes of all groups
  static constexpr int kElements = kGroups * kTiles * kLaneElements;  // per thread
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kStripsBytes;

  // Steps of the depth in an iteration of the loop.
  static QUIRE_DEVICE constexpr int steps_together(bool moves_loads_up) {
    if (F::kFormat.table == CodeTable::kFp4 || (moves_loads_up && kIsTight)) return kLeastTogether;
    return moves_loads_up ? kStripSteps / 2 : kStripSteps;
  }

  // The tiles of a block of the depth lie together, as in memory.
  template <class Thread>
  static QUIRE_DEVICE void fetch_tiles(Thread& t, const Args& args, int step, int stage) {
    constexpr int kBytes = kBlockTiles * kTileBytes;  // bytes per block of the depth
    const auto first_block = static_cast<unsigned>(step * kStageBlocks);
    std::byte* to = t.shared() + stage * kStageBytes;
    QUIRE_UNROLL
    for (int first = 0; first < kStageBytes; first += 16 * kThreads) {
      const int at = first + 16 * t.index();
      if (at >= kStageBytes) continue;
      const ActTile* tiles =
          args.tiles_of(first_block + static_cast<unsigned>(at / kBytes)) + t.block_y() * kBlockTiles;
      t.copy_async(to + at, reinterpret_cast<const std::byte*>(tiles) + at % kBytes);
    }
  }

  // Fetches a strip of each group; groups behind the last one repeat it.
  template <class Thread>
  static QUIRE_DEVICE void fetch_strips(Thread& t, const Args& args, int strip) {
    const int first_group = static_cast<int>(t.block_x()) * kBlockGroups;
    const int last = args.num_groups() - 1;
    const std::int64_t num_strips = args.num_strips();
    std::byte* to = t.shared() + kStages * kStageBytes + strip % 2 * kStripsBytes;
    QUIRE_UNROLL
    for (int first = 0; first < kStripsBytes; first += 16 * kThreads) {
      const int at = first + 16 * t.index();
      if (at >= kStripsBytes) continue;
      const int number = first_group + at / kStripBytes;
      const std::int64_t group = number < last ? number : last;
      t.copy_async(to + at, args.strips + (group * num_strips + strip) * kStripBytes + at % kStripBytes);
    }
  }

  // Multiplies a step of the depth; `sub` counts the steps of a strip. Returns the stage of the next one.
  template <class Thread>
  static QUIRE_DEVICE int multiply_step(Thread& t, const Args& args, int strip, int sub, int stage,
                                        BlockWeights<F, kGroups>& w, float (&acc)[kGroups][kTiles][kLaneElements]) {
    const int step = strip * kStripSteps + sub;
    const int num_strips = args.num_strips();
    t.template wait_copies<kStages - 2>();
    t.sync_block();  // all copies have landed, and the refilled stages are read
    if (step + kStages - 1 < num_strips * kStripSteps)
      fetch_tiles(t, args, step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
    if (sub == 0 && strip + 1 < num_strips) fetch_strips(t, args, strip + 1);
    t.commit_copies();
    const int first_tile = t.warp() % 2 * kTiles;
    const int num_tiles =
        static_cast<int>((args.output.rows + kTileRows - 1) / kTileRows - t.block_y() * kBlockTiles) - first_tile;
    const auto* tiles = reinterpret_cast<const ActTile*>(t.shared() + stage * kStageBytes) + first_tile;
    const std::byte* weights =
        t.shared() + kStages * kStageBytes + strip % 2 * kStripsBytes + t.warp() / 2 * kGroups * kStripBytes;
    QUIRE_UNROLL
    for (int i = 0; i < kStageBlocks; ++i) {
      w.load(t, static_cast<unsigned>(sub) * kStageBlocks + static_cast<unsigned>(i),
             [&](int g) { return weights + g * kStripBytes; });
      QUIRE_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        if (Thread::moves_loads_up() && kIsTight && tile >= num_tiles) break;
        const LaneTile<F> rows = load_tile<F>(t, tiles[i * kBlockTiles + tile]);
        QUIRE_UNROLL
        for (int g = 0; g < kGroups; ++g)
          multiply_tile<F>(t, w.a[g], w.scales[g], rows, acc[g][tile]);
      }
    }
    return stage + 1 == kStages ? 0 : stage + 1;
  }

  static QUIRE_DEVICE void close_cut(volatile float (&total)[kElements], float (&acc)[kGroups][kTiles][kLaneElements],
                                     bool first) {
    QUIRE_UNROLL
    for (int i = 0; i < kElements; ++i) {
      float& part = acc[i / (kTiles * kLaneElements)][i / kLaneElements % kTiles][i % kLaneElements];
      total[i] = first ? part : total[i] + part;
      part = 0.0f;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    constexpr int kSteps = steps_together(Thread::moves_loads_up());
    fetch_strips(t, args, 0);
    for (int step = 0; step < kStages - 1; ++step) {
      fetch_tiles(t, args, step, step);
      t.commit_copies();
    }
    volatile float total[kElements] = {};  // kept out of registers, which are short: used once a cut
    float acc[kGroups][kTiles][kLaneElements] = {};
    BlockWeights<F, kGroups> weights{};
    int stage = 0;
    const int num_strips = args.num_strips();
    for (int strip = 0; strip < num_strips; ++strip) {
      QUIRE_ROLLED
      for (int first = 0; first < kStripSteps; first += kSteps) {
        QUIRE_UNROLL
        for (int sub = first; sub < first + kSteps; ++sub)
          stage = multiply_step(t, args, strip, sub, stage, weights, acc);
      }
      if ((strip + 1) % kCutStrips == 0 || strip + 1 == num_strips) close_cut(total, acc, strip < kCutStrips);
    }
    const int first_group = static_cast<int>(t.block_x()) * kBlockGroups + t.warp() / 2 * kGroups;
    const int first_tile = static_cast<int>(t.block_y()) * kBlockTiles + t.warp() % 2 * kTiles;
    QUIRE_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const int group = first_group + i / (kTiles * kLaneElements);
      const int tile = first_tile + i / kLaneElements % kTiles;
      write_element(args.output, tile * kTileRows + lane_row(t.lane(), i % kLaneElements),
                    group * kStripOutputs + lane_output(t.lane(), i % kLaneElements), total[i]);
    }
  }
};

}  // namespace quire::gpu
