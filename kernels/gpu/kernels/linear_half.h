// linear_half: weights of 16 bits times activations rounded to the same type (round_rows.h), by mma.m16n8k16 with sums
// in f32, for few rows and for many. Sums over kDepthCut features each are chains of instructions, added in order.
// Invariant: an element's chain is the same in both kernels and for any number of rows. What happens to a sum inside of
// one instruction is the chip's own: devices agree by tolerance, each with itself by bits.
#pragma once

#include "kernels/element_type.h"
#include "kernels/gpu/half_tiles.h"
#include "kernels/gpu/kernels/cut_sums.h"

namespace quire::gpu {

struct LinearHalfArgs {
  const WeightTile* weights = nullptr;  // [outputs / 16][num_blocks]
  const HalfTile* x = nullptr;          // [rows / 8][num_blocks]
  const float* row_scales = nullptr;    // of f16: what a row's results are multiplied with
  std::int64_t num_blocks = 0;          // of the depth
  LinearOutput output;
  ExpertProduct experts = {};  // weights and bias are the first one's; for few rows only
};

inline constexpr int kCutHalfBlocks = kDepthCut / kHalfBlock;

template <DType kType, class Thread>
QUIRE_DEVICE void multiply_halves(Thread& t, float (&sum)[kLaneElements], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kType == DType::kF16) {
    t.mma_f16(sum, {a0, a1, a2, a3}, {b0, b1});
  } else {
    t.mma_bf16(sum, {a0, a1, a2, a3}, {b0, b1});
  }
}

// What a lane multiplies of a tile of 16 outputs: of output lane / 4, and of the one eight further on.
struct LaneWeights {
  Words4 low;
  Words4 high;
};

template <class Thread>
QUIRE_DEVICE LaneWeights lane_weights(Thread& t, const WeightTile* tile) {
  const auto* from = reinterpret_cast<const std::byte*>(tile) + 16 * t.lane();
  return {load_as<Words4>(from), load_as<Words4>(from + sizeof(WeightTile) / 2)};
}

template <class Thread>
QUIRE_DEVICE Words4 lane_rows(Thread& t, const HalfTile* tile) {
  return load_as<Words4>(reinterpret_cast<const std::byte*>(tile) + 16 * t.lane());
}

// acc += one block of 32 features.
template <DType kType, class Thread>
QUIRE_DEVICE void multiply_block(Thread& t, const LaneWeights& w, const Words4& x, float (&acc)[kLaneElements]) {
  multiply_halves<kType>(t, acc, w.low.of[0], w.high.of[0], w.low.of[1], w.high.of[1], x.of[0], x.of[1]);
  multiply_halves<kType>(t, acc, w.low.of[2], w.high.of[2], w.low.of[3], w.high.of[3], x.of[2], x.of[3]);
}

template <DType kType>
QUIRE_DEVICE void write_scaled(const LinearHalfArgs& args, std::int64_t row, std::int64_t output, float value) {
  if (row >= args.output.rows) return;
  if constexpr (kType == DType::kF16) value = value * args.row_scales[row];
  write_element(args.output, row, output, value);
}

// Few rows. A block has 16 outputs and up to 8 * kTiles rows; its four warps take cuts of the depth in turn, weights go
// through a ring of four stages, of which each lane fills and reads its own part. Grid: x outputs / 16, y rows / (8 *
// kTiles), or items of experts, each of at most so many rows.
template <DType kType, int kTiles>
struct LinearHalfSkinny {
  using Args = LinearHalfArgs;
  using Sums = CutSums<kTiles>;
  static constexpr int kWarps = Sums::kWarps;
  static constexpr int kThreads = Sums::kThreads;
  static constexpr int kStages = 4;
  static constexpr int kStageBlocks = 4;
  static constexpr int kStageBytes = kStageBlocks * static_cast<int>(sizeof(WeightTile));
  static constexpr int kCutStages = kCutHalfBlocks / kStageBlocks;
  static constexpr int kRingBytes = kWarps * kStages * kStageBytes;
  static constexpr int kSharedBytes = kRingBytes + Sums::kBytes;

  // The first block of a stage that a warp takes: those of cuts warp, warp + 4, ...
  static QUIRE_DEVICE std::int64_t block_of(int warp, std::int64_t turn) {
    return ((turn / kCutStages * kWarps + warp) * kCutStages + turn % kCutStages) * kStageBlocks;
  }

  template <class Thread>
  static QUIRE_DEVICE std::byte* stage_of(Thread& t, std::int64_t turn) {
    return t.shared() + (t.warp() * kStages + turn % kStages) * kStageBytes;
  }

  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Args& args, const WeightTile* weights, std::int64_t turn) {
    const std::int64_t first = block_of(t.warp(), turn);
    const auto* from = reinterpret_cast<const std::byte*>(weights + first);
    QUIRE_UNROLL
    for (int block = 0; block < kStageBlocks; ++block) {
      if (first + block >= args.num_blocks) break;
      constexpr int kTileBytes = sizeof(WeightTile);
      for (int at = block * kTileBytes + 16 * t.lane(); at < (block + 1) * kTileBytes; at += 16 * kWarpLanes)
        t.copy_async(stage_of(t, turn) + at, from + at);
    }
    t.commit_copies();
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply_stage(Thread& t, const Args& args, std::int64_t turn, std::int64_t first_tile,
                                          float (&acc)[kTiles][kLaneElements]) {
    const std::int64_t num_tiles = (args.output.rows + kHalfRows - 1) / kHalfRows;
    const std::int64_t first = block_of(t.warp(), turn);
    const auto* stage = reinterpret_cast<const WeightTile*>(stage_of(t, turn));
    QUIRE_UNROLL
    for (int block = 0; block < kStageBlocks; ++block) {
      if (first + block >= args.num_blocks) break;
      const LaneWeights w = lane_weights(t, stage + block);
      const HalfTile* x = args.x + first_tile * args.num_blocks + first + block;
      QUIRE_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        if (first_tile + tile < num_tiles)
          multiply_block<kType>(t, w, lane_rows(t, x + tile * args.num_blocks), acc[tile]);
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
      const auto* weights = reinterpret_cast<const std::byte*>(args.weights);
      own.weights = reinterpret_cast<const WeightTile*>(weights + args.experts.weights[item.expert].weights);
      own.x += item.first_tile * args.num_blocks;
      own.row_scales += item.first_tile * kHalfRows;
      own.output.narrow_to(item, args.experts.weights[item.expert]);
      first_tile = 0;
    }
    multiply(t, own, first_tile);
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply(Thread& t, const Args& args, std::int64_t first_tile) {
    const std::int64_t num_cuts = (args.num_blocks + kCutHalfBlocks - 1) / kCutHalfBlocks;
    const WeightTile* weights = args.weights + t.block_x() * args.num_blocks;
    Sums sums;
    for (int turn = 0; turn < kStages - 1; ++turn)
      fetch(t, args, weights, turn);
    std::int64_t turn = 0;
    float acc[kTiles][kLaneElements] = {};
    for (std::int64_t cut = 0; cut < num_cuts; cut += kWarps) {
      for (int i = 0; i < kCutStages; ++i, ++turn) {
        t.template wait_copies<kStages - 2>();  // a lane multiplies what it copied itself: nothing else is waited for
        fetch(t, args, weights, turn + kStages - 1);
        multiply_stage(t, args, turn, first_tile, acc);
      }
      sums.add(t, reinterpret_cast<float*>(t.shared() + kRingBytes), acc, static_cast<int>(cut),
               static_cast<int>(num_cuts), cut > 0);
    }
    QUIRE_UNROLL
    for (int i = 0; i < kTiles; ++i)
      write_scaled<kType>(args, first_tile * kTileRows + sums.row(t, i), t.block_x() * kHalfOutputs + sums.output(t, i),
                          sums.total[i]);
  }
};

// Many rows. A block has 128 outputs and 128 rows, eight warps of 32 outputs times 64 rows; both operands go through
// shared memory in four stages of 32 features. Grid: x outputs / 128, y rows / 128.
template <DType kType>
struct LinearHalfWide {
  using Args = LinearHalfArgs;
  static constexpr int kThreads = 256;
  static constexpr int kStages = 4;
  static constexpr int kGroups = 2;       // of 16 outputs, of a warp
  static constexpr int kTiles = 8;        // of 8 rows, of a warp
  static constexpr int kBlockGroups = 8;  // of a block
  static constexpr int kBlockTiles = 16;
  static constexpr int kWeightBytes = kBlockGroups * static_cast<int>(sizeof(WeightTile));
  static constexpr int kStageBytes = kWeightBytes + kBlockTiles * static_cast<int>(sizeof(HalfTile));
  static constexpr int kSharedBytes = kStages * kStageBytes;

  // What a warp computes: up to kGroups groups of outputs times up to kTiles tiles of rows.
  struct WarpPlace {
    std::int64_t num_groups;
    std::int64_t num_tiles;
    int group;  // the first ones' places in a stage
    int tile;
  };

  // What a thread copies of each block of the depth: 16 bytes of some tiles of one operand.
  struct Source {
    const std::byte* from;   // of block 0
    std::int64_t next_tile;  // bytes to the next of its tiles
    std::int64_t count;      // of its tiles
  };
  template <class Tile, class Thread>
  static QUIRE_DEVICE Source source_of(Thread& t, const Tile* tiles, std::int64_t first, std::int64_t end,
                                       std::int64_t num_blocks) {
    constexpr int kTileBytes = sizeof(Tile);
    constexpr int kTogether = 16 * kThreads / kTileBytes;  // tiles that the block copies at once
    const std::int64_t tile = first + 16 * t.index() / kTileBytes;
    return {reinterpret_cast<const std::byte*>(tiles + tile * num_blocks) + 16 * t.index() % kTileBytes,
            kTogether * num_blocks * kTileBytes, (end - tile + kTogether - 1) / kTogether};
  }

  template <int kTileBytes, int kTiles, class Thread>
  static QUIRE_DEVICE void fetch_tiles(Thread& t, const Source& source, std::int64_t block, std::byte* stage) {
    QUIRE_UNROLL
    for (int i = 0; i < kTiles * kTileBytes / (16 * kThreads); ++i) {
      if (i < source.count)
        t.copy_async(stage + 16 * (i * kThreads + t.index()), source.from + i * source.next_tile + block * kTileBytes);
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Source& weights, const Source& rows, std::int64_t block,
                                 std::int64_t num_blocks) {
    std::byte* stage = t.shared() + block % kStages * kStageBytes;
    if (block < num_blocks) {
      fetch_tiles<sizeof(WeightTile), kBlockGroups>(t, weights, block, stage);
      fetch_tiles<sizeof(HalfTile), kBlockTiles>(t, rows, block, stage + kWeightBytes);
    }
    t.commit_copies();
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply_stage(Thread& t, const WarpPlace& place, const std::byte* stage,
                                          float (&acc)[kGroups][kTiles][kLaneElements]) {
    const auto* weights = reinterpret_cast<const WeightTile*>(stage) + place.group;
    const auto* x = reinterpret_cast<const HalfTile*>(stage + kWeightBytes) + place.tile;
    LaneWeights w[kGroups] = {};
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (g < place.num_groups) w[g] = lane_weights(t, weights + g);
    }
    QUIRE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= place.num_tiles) break;
      const Words4 rows = lane_rows(t, x + tile);
      QUIRE_UNROLL
      for (int g = 0; g < kGroups; ++g)
        multiply_block<kType>(t, w[g], rows, acc[g][tile]);
    }
  }

  static QUIRE_DEVICE void close_cut(float (&total)[kGroups][kTiles][kLaneElements],
                                     float (&acc)[kGroups][kTiles][kLaneElements], bool first) {
    QUIRE_UNROLL
    for (int i = 0; i < kGroups * kTiles * kLaneElements; ++i) {
      const int g = i / (kTiles * kLaneElements);
      float& part = acc[g][i / kLaneElements % kTiles][i % kLaneElements];
      float& sum = total[g][i / kLaneElements % kTiles][i % kLaneElements];
      sum = first ? part : sum + part;
      part = 0.0f;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t num_groups = (args.output.outputs + kHalfOutputs - 1) / kHalfOutputs;
    const std::int64_t num_tiles = (args.output.rows + kHalfRows - 1) / kHalfRows;
    WarpPlace place;
    place.group = t.warp() / 2 * kGroups;
    place.tile = t.warp() % 2 * kTiles;
    const std::int64_t first_group = t.block_x() * kBlockGroups + place.group;
    const std::int64_t first_tile = t.block_y() * kBlockTiles + place.tile;
    place.num_groups = num_groups - first_group;
    place.num_tiles = num_tiles - first_tile;
    const Source weights = source_of(t, args.weights, t.block_x() * kBlockGroups, num_groups, args.num_blocks);
    const Source rows = source_of(t, args.x, t.block_y() * kBlockTiles, num_tiles, args.num_blocks);
    for (int block = 0; block < kStages - 1; ++block)
      fetch(t, weights, rows, block, args.num_blocks);
    float total[kGroups][kTiles][kLaneElements] = {};
    float acc[kGroups][kTiles][kLaneElements] = {};
    for (std::int64_t cut = 0; cut < args.num_blocks; cut += kCutHalfBlocks) {
      for (std::int64_t block = cut; block < cut + kCutHalfBlocks && block < args.num_blocks; ++block) {
        t.template wait_copies<kStages - 2>();
        t.sync_block();  // all copies have landed, and all threads have read the stage that is filled next
        fetch(t, weights, rows, block + kStages - 1, args.num_blocks);
        multiply_stage(t, place, t.shared() + block % kStages * kStageBytes, acc);
      }
      close_cut(total, acc, cut == 0);
    }
    QUIRE_UNROLL
    for (int i = 0; i < kGroups * kTiles * kLaneElements; ++i) {
      const int g = i / (kTiles * kLaneElements);
      const int tile = i / kLaneElements % kTiles;
      const int element = i % kLaneElements;
      write_scaled<kType>(args, (first_tile + tile) * kHalfRows + lane_row(t.lane(), element),
                          (first_group + g) * kHalfOutputs + lane_output(t.lane(), element), total[g][tile][element]);
    }
  }
};

}  // namespace quire::gpu
