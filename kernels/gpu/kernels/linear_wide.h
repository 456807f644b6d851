// linear_wide: quantised weights times many rows. A block has 128 outputs and 128 rows; eight warps of 32 outputs times
// 64 rows. Activations go through shared memory in three stages of 64 features, filled by asynchronous copies; weights
// go to registers, unpacked once for 64 rows. Grid: x outputs / 128, y rows / 128.
#pragma once

#include "kernels/gpu/kernels/linear_int.h"

namespace quire::gpu {

template <DType kType>
struct LinearWide {
  using Args = LinearIntArgs;
  using F = Form<kType>;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kStages = 3;
  static constexpr int kStageBlocks = 2;
  static constexpr int kStripSteps = kStripBlocks / kStageBlocks;
  static constexpr int kGroups = 2;       // of 16 outputs, of a warp
  static constexpr int kTiles = 8;        // of 8 rows, of a warp
  static constexpr int kBlockTiles = 16;  // of a block
  static constexpr int kBlockGroups = 8;
  static constexpr int kStageTiles = kBlockTiles * kStageBlocks;
  static constexpr int kRingBytes = kStages * kStageTiles * static_cast<int>(sizeof(ActTile));
  static constexpr int kElements = kGroups * kTiles * kLaneElements;  // of a thread
  static constexpr int kSharedBytes = kRingBytes + kElements * kThreads * static_cast<int>(sizeof(float));

  // What a warp computes: up to kGroups groups of outputs times up to kTiles tiles of rows.
  struct WarpPlace {
    std::int64_t num_strips;  // of the depth
    std::int64_t first_group;
    std::int64_t num_groups;
    std::int64_t first_tile;
    std::int64_t num_tiles;
    int stage_tile;  // the first tile's place in a stage
  };

  // Tiles of two blocks of the depth lie together in a stage, as in memory.
  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Args& args, std::int64_t step) {
    constexpr int kTileBytes = sizeof(ActTile);
    const std::int64_t num_tiles = (args.output.rows + kTileRows - 1) / kTileRows;
    const std::int64_t first_tile = static_cast<std::int64_t>(t.block_y()) * kBlockTiles;
    const std::int64_t first_block = step * kStageBlocks;
    std::byte* stage = t.shared() + step % kStages * kStageTiles * kTileBytes;
    for (int at = 16 * t.index(); at < kStageTiles * kTileBytes; at += 16 * kThreads) {
      const int number = at / kTileBytes;
      const std::int64_t tile = first_tile + number / kStageBlocks;
      const std::int64_t block = first_block + number % kStageBlocks;
      if (tile >= num_tiles || block >= args.num_blocks) continue;
      const auto* from = reinterpret_cast<const std::byte*>(args.tiles + tile * args.num_blocks + block);
      t.copy_async(stage + at, from + at % kTileBytes);
    }
    t.commit_copies();
  }

  // The weights of one block of the depth, of those groups that there are; of others zeros.
  struct BlockWeights {
    std::uint32_t a[kGroups][4];
    OutputScales scales[kGroups][2];
  };

  template <class Thread>
  static QUIRE_DEVICE void load_weights(Thread& t, const Args& args, const WarpPlace& place, std::int64_t strip,
                                        int block, LaneCodes<F> (&codes)[kGroups], BlockWeights& out) {
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (g >= place.num_groups) break;
      const std::byte* from = args.strips + ((place.first_group + g) * place.num_strips + strip) * F::kLayout.bytes;
      codes[g].load(from + F::kLayout.scale_bytes, t.lane(), block);
      operand_of(t, codes[g], block, out.a[g]);
      for (int o = 0; o < 2; ++o)
        out.scales[g][o] = scales_of<F>(t, from, block, lane_output(t.lane(), 2 * o));
    }
  }

  // One step of the depth, of which `sub` counts those of a strip.
  template <class Thread>
  static QUIRE_DEVICE void multiply_step(Thread& t, const Args& args, const WarpPlace& place, std::int64_t strip,
                                         int sub, LaneCodes<F> (&codes)[kGroups],
                                         float (&acc)[kGroups][kTiles][kLaneElements]) {
    const std::int64_t step = strip * kStripSteps + sub;
    t.template wait_copies<kStages - 2>();
    t.sync_block();  // all copies have landed, and all threads have read the stage that is filled next
    fetch(t, args, step + kStages - 1);
    const auto* stage = reinterpret_cast<const ActTile*>(t.shared()) + step % kStages * kStageTiles;
    QUIRE_UNROLL
    for (int i = 0; i < kStageBlocks; ++i) {
      if (step * kStageBlocks + i >= args.num_blocks) break;
      BlockWeights weights{};
      load_weights(t, args, place, strip, sub * kStageBlocks + i, codes, weights);
      const ActTile* x = stage + place.stage_tile * kStageBlocks + i;
      QUIRE_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile >= place.num_tiles) break;
        const LaneTile<F> rows = load_tile<F>(t, x[tile * kStageBlocks]);
        QUIRE_UNROLL
        for (int g = 0; g < kGroups; ++g)
          multiply_tile<F>(t, weights.a[g], weights.scales[g], rows, acc[g][tile]);
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE WarpPlace place_of(Thread& t, const Args& args) {
    WarpPlace place;
    place.num_strips = strips_of_depth(args);
    place.first_group = static_cast<std::int64_t>(t.block_x()) * kBlockGroups + t.warp() / 2 * kGroups;
    place.num_groups = (args.output.outputs + kStripOutputs - 1) / kStripOutputs - place.first_group;
    place.stage_tile = t.warp() % 2 * kTiles;
    place.first_tile = static_cast<std::int64_t>(t.block_y()) * kBlockTiles + place.stage_tile;
    place.num_tiles = (args.output.rows + kTileRows - 1) / kTileRows - place.first_tile;
    return place;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const WarpPlace place = place_of(t, args);
    for (int step = 0; step < kStages - 1; ++step)
      fetch(t, args, step);
    // A thread's sums of cuts lie in shared memory: registers would be spilled.
    float* total = reinterpret_cast<float*>(t.shared() + kRingBytes) + t.index();
    float acc[kGroups][kTiles][kLaneElements] = {};
    LaneCodes<F> codes[kGroups] = {};
    for (std::int64_t strip = 0; strip < place.num_strips; ++strip) {
      QUIRE_UNROLL
      for (int sub = 0; sub < kStripSteps; ++sub)
        multiply_step(t, args, place, strip, sub, codes, acc);
      if ((strip + 1) % kCutStrips == 0 || strip + 1 == place.num_strips) close_cut(total, acc, strip < kCutStrips);
    }
    write(t, args, place, total);
  }

  static QUIRE_DEVICE void close_cut(float* total, float (&acc)[kGroups][kTiles][kLaneElements], bool first) {
    QUIRE_UNROLL
    for (int i = 0; i < kElements; ++i) {
      float& part = acc[i / (kTiles * kLaneElements)][i / kLaneElements % kTiles][i % kLaneElements];
      total[i * kThreads] = first ? part : total[i * kThreads] + part;
      part = 0.0f;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void write(Thread& t, const Args& args, const WarpPlace& place, const float* total) {
    QUIRE_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const int g = i / (kTiles * kLaneElements);
      const int tile = i / kLaneElements % kTiles;
      const int element = i % kLaneElements;
      write_element(args.output, (place.first_tile + tile) * kTileRows + lane_row(t.lane(), element),
                    (place.first_group + g) * kStripOutputs + lane_output(t.lane(), element), total[i * kThreads]);
    }
  }
};

}  // namespace quire::gpu
