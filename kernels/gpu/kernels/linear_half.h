// linear_half: weights of 16 bits times activations rounded to the same type (round_rows.h), by mma.m16n8k16 with sums
// in f32. The kernel has several shapes (half_shapes.h): both operands go through a ring in shared memory, a warp loads
// the operands of the next block of the depth while it multiplies.
// Invariant: an element's sum is one chain of instructions in the order of the depth, the same in every shape and for
// any number of rows. How an instruction adds up internally depends on the chip: results of two chips agree by
// tolerance, those of one chip by bits.
#pragma once

#include "kernels/formats/element_type.h"
#include "kernels/gpu/kernels/linear_int.h"
#include "kernels/gpu/pack/half_shapes.h"
#include "kernels/gpu/pack/half_tiles.h"

namespace quire::gpu {

struct LinearHalfArgs {
  const WeightTile* weights = nullptr;  // [outputs / 16][num_blocks]
  const HalfTile* x = nullptr;          // [rows / 8][num_blocks]
  const float* row_scales = nullptr;    // factors of f16 rows' results
  std::int64_t num_blocks = 0;          // along the depth
  LinearOutput output;
  ExpertProduct experts = {};  // weights and bias are the first one's
};

template <DType kType, class Thread>
QUIRE_DEVICE void multiply_halves(Thread& t, float (&sum)[kLaneElements], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kType == DType::kF16) {
    t.mma_f16(sum, {a0, a1, a2, a3}, {b0, b1});
  } else {
    t.mma_bf16(sum, {a0, a1, a2, a3}, {b0, b1});
  }
}

// A lane's words of a tile of 16 outputs: of output lane / 4, and of the one eight further on.
struct LaneWeights {
  Words4 low;
  Words4 high;
};

// acc += one block of 32 features.
template <DType kType, class Thread>
QUIRE_DEVICE void multiply_block(Thread& t, const LaneWeights& w, const Words4& x, float (&acc)[kLaneElements]) {
  multiply_halves<kType>(t, acc, w.low.of[0], w.high.of[0], w.low.of[1], w.high.of[1], x.of[0], x.of[1]);
  multiply_halves<kType>(t, acc, w.low.of[2], w.high.of[2], w.low.of[3], w.high.of[3], x.of[2], x.of[3]);
}

// Rows and outputs of a block, counted from row 0 and output 0 of `output`.
struct HalfPlace {
  int first_row;
  int first_output;
};

// Copies of a thread for each block of the depth: 16 bytes each of some tiles of one operand. Rows and outputs that
// do not exist are copies of the last one, so that all of a stage is defined.
template <int kCopies>
struct HalfSource {
  static constexpr int kCount = kCopies;
  const std::byte* from;           // source in block 0
  std::uint32_t offsets[kCopies];  // from there
};

// Grid: x outputs of a shape, y rows of a shape, or items of experts, each of at most a shape's rows.
template <DType kType, HalfShape kShape>
struct LinearHalf {
  using Args = LinearHalfArgs;
  static constexpr int kThreads = kShape.output_warps * kShape.row_warps * kWarpLanes;
  // True if such a shape waits for memory, not for products.
  static constexpr bool kFetchesFirst = kShape.groups * kShape.tiles <= 4;
  static constexpr int kGroups = kShape.groups;
  static constexpr int kTiles = kShape.tiles;
  static constexpr int kAtOnce = kGroups >= 4 ? 1 : 4 / kGroups < kTiles ? 4 / kGroups : kTiles;  // tiles
  static constexpr int kWeightBytes = kShape.outputs() * kHalfRowBytes;
  static constexpr int kRowBytes = kShape.rows() * kHalfRowBytes;
  static constexpr int kBufferBytes = kWeightBytes + kRowBytes;  // bytes per block of the depth
  static constexpr int kBuffers = kShape.stages * kShape.stage_blocks;
  static constexpr int kSharedBytes = kBuffers * kBufferBytes;
  static constexpr int kCopyBytes = 16 * kThreads;  // bytes that the block copies at once
  static_assert(kTiles % kAtOnce == 0 && kWeightBytes % kCopyBytes == 0 && kShape.stages >= 3);

  using Weights = HalfSource<kWeightBytes / kCopyBytes>;
  using Rows = HalfSource<(kRowBytes + kCopyBytes - 1) / kCopyBytes>;

  // A lane's operands: its words of the weights of a block of the depth, and of the rows of the first tiles.
  struct Operands {
    Words4 weights[2 * kGroups];  // output lane / 4 of a group, and the one eight further on
    Words4 rows[kAtOnce];
  };

  // The block's ring of blocks of the depth.
  struct Ring {
    Weights weights;
    Rows rows;
    int num_blocks;
    int block = 0;   // block that is fetched next
    int buffer = 0;  // buffer of that block
  };

  static QUIRE_DEVICE int buffer_after(int buffer) { return buffer + 1 == kBuffers ? 0 : buffer + 1; }

  // A vector is an output or a row: 64 bytes of a tile.
  template <int kTileVectors, int kCopies, class Thread>
  static QUIRE_DEVICE HalfSource<kCopies> source_of(Thread& t, const std::byte* tiles, int first, int end,
                                                    int num_blocks) {
    const int tile_stride = num_blocks * kTileVectors * kHalfRowBytes;
    HalfSource<kCopies> out;
    out.from = tiles + static_cast<std::int64_t>(first / kTileVectors) * tile_stride;
    QUIRE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int wanted = (i * kCopyBytes + 16 * t.index()) / kHalfRowBytes;
      const int vector = first + wanted < end ? wanted : end - 1 - first;
      out.offsets[i] = static_cast<std::uint32_t>(vector / kTileVectors * tile_stride +
                                                  vector % kTileVectors * kHalfRowBytes + 16 * (t.index() % 4));
    }
    return out;
  }

  template <int kBytes, int kTileBytes, int kCopies, class Thread>
  static QUIRE_DEVICE void fetch_operand(Thread& t, const HalfSource<kCopies>& source, int block, std::byte* to) {
    const std::byte* from = source.from + block * kTileBytes;
    QUIRE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int at = i * kCopyBytes + 16 * t.index();
      if (kBytes % kCopyBytes == 0 || at < kBytes) t.copy_async(to + at, from + source.offsets[i]);
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void fetch_stage(Thread& t, Ring& ring) {
    QUIRE_UNROLL
    for (int i = 0; i < kShape.stage_blocks; ++i) {
      if (ring.block < ring.num_blocks) {
        std::byte* to = t.shared() + ring.buffer * kBufferBytes;
        fetch_operand<kWeightBytes, sizeof(WeightTile)>(t, ring.weights, ring.block, to);
        fetch_operand<kRowBytes, sizeof(HalfTile)>(t, ring.rows, ring.block, to + kWeightBytes);
      }
      ++ring.block;
      ring.buffer = buffer_after(ring.buffer);
    }
    t.commit_copies();
  }

  // Begins a stage's first block: the stage and the next one have landed for all threads, and all have read the stage
  // that is refilled.
  template <class Thread>
  static QUIRE_DEVICE void begin_block(Thread& t, int block) {
    if (block % kShape.stage_blocks != 0) return;
    t.template wait_copies<kShape.stages - 3>();
    t.sync_block();
  }

  // A lane's words of its warp's first tiles.
  template <class Thread>
  static QUIRE_DEVICE const std::byte* lane_weights(Thread& t, int buffer) {
    const int group = t.warp() / kShape.row_warps * kGroups;
    return t.shared() + buffer * kBufferBytes + group * static_cast<int>(sizeof(WeightTile)) + 16 * t.lane();
  }
  template <class Thread>
  static QUIRE_DEVICE const std::byte* lane_rows(Thread& t, int buffer) {
    const int tile = t.warp() % kShape.row_warps * kTiles;
    return t.shared() + buffer * kBufferBytes + kWeightBytes + tile * static_cast<int>(sizeof(HalfTile)) +
           16 * t.lane();
  }

  template <int kCount>
  static QUIRE_DEVICE void load_rows(const std::byte* from, Words4 (&rows)[kCount]) {
    QUIRE_UNROLL
    for (int i = 0; i < kCount; ++i)
      rows[i] = load_as<Words4>(from + i * sizeof(HalfTile));
  }

  // acc += the block of the depth in `buffer`, whose operands are `now`; meanwhile loads `next` from `next_buffer` and,
  // if it fetches, a stage.
  template <class Thread>
  static QUIRE_DEVICE void multiply_buffer(Thread& t, Ring& ring, bool fetches, int buffer, int next_buffer,
                                           const Operands& now, Operands& next,
                                           float (&acc)[kGroups][kTiles][kLaneElements]) {
    const std::byte* rows = lane_rows(t, buffer);
    const std::byte* next_weights = lane_weights(t, next_buffer);
    Operands of = now;
    QUIRE_UNROLL
    for (int tile = 0; tile < kTiles; tile += kAtOnce) {
      const int behind = tile + kAtOnce;
      load_rows(behind < kTiles ? rows + behind * sizeof(HalfTile) : lane_rows(t, next_buffer), next.rows);
      QUIRE_UNROLL
      for (int part = tile * 2 * kGroups / kTiles; part < behind * 2 * kGroups / kTiles; ++part)
        next.weights[part] = load_as<Words4>(next_weights + part * sizeof(WeightTile) / 2);
      QUIRE_UNROLL
      for (int i = 0; i < 2 * kAtOnce * kGroups; ++i) {  // sums of one instruction are not those of the next
        const int word = i / (kAtOnce * kGroups) * 2;
        const int g = i % kGroups;
        const Words4& x = of.rows[i / kGroups % kAtOnce];
        const Words4& low = of.weights[2 * g];
        const Words4& high = of.weights[2 * g + 1];
        multiply_halves<kType>(t, acc[g][tile + i / kGroups % kAtOnce], low.of[word], high.of[word], low.of[word + 1],
                               high.of[word + 1], x.of[word], x.of[word + 1]);
      }
      if (tile == 0 && fetches) fetch_stage(t, ring);
      QUIRE_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        of.rows[i] = next.rows[i];
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply(Thread& t, Ring& ring, float (&acc)[kGroups][kTiles][kLaneElements]) {
    const int num_blocks = ring.num_blocks;
    QUIRE_UNROLL
    for (int stage = 0; stage < kShape.stages - 1; ++stage)
      fetch_stage(t, ring);
    begin_block(t, 0);
    Operands now;
    Operands next;
    QUIRE_UNROLL
    for (int part = 0; part < 2 * kGroups; ++part)
      now.weights[part] = load_as<Words4>(lane_weights(t, 0) + part * sizeof(WeightTile) / 2);
    load_rows(lane_rows(t, 0), now.rows);
    int buffer = 0;
    QUIRE_ROLLED  // two blocks an iteration are slower: ptxas moves all sums between registers
        for (int block = 0; block < num_blocks; ++block) {
      if (block > 0) begin_block(t, block);
      const bool fetches = block % kShape.stage_blocks == 0;
      if (kFetchesFirst && fetches) fetch_stage(t, ring);
      const int next_buffer = block + 1 < num_blocks ? buffer_after(buffer) : buffer;  // past the end: unused
      multiply_buffer(t, ring, !kFetchesFirst && fetches, buffer, next_buffer, now, next, acc);
      now = next;
      buffer = next_buffer;
    }
  }

  // A warp's results of eight rows; all that is added to is read before the first is written.
  static QUIRE_DEVICE void write_tile(const LinearOutput& to, const float* row_scales, std::int64_t first_row,
                                      std::int64_t first_output, int lane, int tile,
                                      const float (&acc)[kGroups][kTiles][kLaneElements]) {
    const std::int64_t row = first_row + tile * kHalfRows + lane_row(lane, 0);
    const std::int64_t output = first_output + lane_output(lane, 0);
    float* out = to.out + row * to.out_stride + output;
    float values[kGroups * kLaneElements];
    const auto exists = [&](int i) { return row + i % 2 < to.rows && output + i / 2 * 8 < to.outputs; };
    const auto place = [&](int i) { return (i % 2 == 0 ? out : out + to.out_stride) + i / 2 * 8; };
    QUIRE_UNROLL
    for (int i = 0; i < kGroups * kLaneElements; ++i) {
      values[i] = acc[i / kLaneElements][tile][i % kLaneElements];
      if (!exists(i)) continue;
      if constexpr (kType == DType::kF16) values[i] = values[i] * row_scales[row + i % 2];
      if (to.scale != 1.0f) values[i] = values[i] * to.scale;
      if (to.bias != nullptr) values[i] = values[i] + to.bias[output + i / 2 * 8];
      if (to.accumulate) values[i] = *place(i) + values[i];
    }
    QUIRE_UNROLL
    for (int i = 0; i < kGroups * kLaneElements; ++i) {
      if (exists(i)) *place(i) = values[i];
    }
  }

  // Blocks that run together share rows and outputs: they go down eight blocks of rows, then to the next outputs.
  template <class Thread>
  static QUIRE_DEVICE HalfPlace place_of(Thread& t, const LinearOutput& output) {
    constexpr int kBand = 8;
    const int across = (static_cast<int>(output.outputs) + kShape.outputs() - 1) / kShape.outputs();
    const int down = (static_cast<int>(output.rows) + kShape.rows() - 1) / kShape.rows();
    const int number = static_cast<int>(t.block_y()) * across + static_cast<int>(t.block_x());
    const int band = number / (kBand * across) * kBand;
    const int height = down - band < kBand ? down - band : kBand;
    const int in_band = number - band * across;
    return {(band + in_band % height) * kShape.rows(), in_band / height * kShape.outputs()};
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    if constexpr (kShape.rows() > kMostItemRows) {
      compute(t, args, place_of(t, args.output));
    } else {
      Args own = args;
      HalfPlace place{0, static_cast<int>(t.block_x()) * kShape.outputs()};
      if (args.experts.items == nullptr) {
        place = place_of(t, args.output);
      } else {
        const ExpertItem item = args.experts.items[t.block_y()];
        if (item.rows == 0) return;
        const auto* weights = reinterpret_cast<const std::byte*>(args.weights);
        own.weights = reinterpret_cast<const WeightTile*>(weights + args.experts.weights[item.expert].weights);
        own.x += item.first_tile * args.num_blocks;
        own.row_scales += item.first_tile * kHalfRows;
        own.output.narrow_to(item, args.experts.weights[item.expert]);
      }
      compute(t, own, place);
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void compute(Thread& t, const Args& args, const HalfPlace& place) {
    Ring ring;
    ring.num_blocks = static_cast<int>(args.num_blocks);
    const auto rows = static_cast<int>(args.output.rows);
    const auto outputs = static_cast<int>(args.output.outputs);
    ring.weights = source_of<kHalfOutputs, Weights::kCount>(t, reinterpret_cast<const std::byte*>(args.weights),
                                                            place.first_output, outputs, ring.num_blocks);
    ring.rows = source_of<kHalfRows, Rows::kCount>(t, reinterpret_cast<const std::byte*>(args.x), place.first_row, rows,
                                                   ring.num_blocks);
    float acc[kGroups][kTiles][kLaneElements] = {};
    multiply(t, ring, acc);
    const int row = place.first_row + t.warp() % kShape.row_warps * kTiles * kHalfRows;
    const int output = place.first_output + t.warp() / kShape.row_warps * kGroups * kHalfOutputs;
    QUIRE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile)
      write_tile(args.output, args.row_scales, row, output, t.lane(), tile, acc);
  }
};

}  // namespace quire::gpu
