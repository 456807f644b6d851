// Paged attention: what its kernels are given, and merge_partitions. A context is computed in partitions of 256 tokens
// by absolute position, by attend (attention_rows.h) or, from caches of 16 bits whose keys are not too long,
// attend_tiles (attention_tiles.h); merge adds a row's partitions up in order. Softmax is to base 2. Invariant: what
// lies beside the tokens that a row sees may be anything and reaches no result.
#pragma once

#include "kernels/gpu/kernels/graph_rows.h"
#include "kernels/gpu/kernels/kv_cache.h"

namespace quire::gpu {

inline constexpr int kPartitionTokens = 256;

// A partition of one row.
struct AttendItem {
  std::int32_t row;
  std::int32_t first_block;  // index of the sequence's first block in the tables
  std::int32_t partition;
  std::int32_t begin;  // the row sees tokens [begin, end) of the context
  std::int32_t end;
  std::int32_t position;  // position of the row
};

// A row's range of tokens and the results of its partitions, [first_item, first_item + count).
struct MergeItem {
  std::int32_t first_item;
  std::int32_t count;
  std::int32_t begin;  // tokens [begin, end) of the context
  std::int32_t end;
  std::int32_t position;
};

// A partition of consecutive rows of a sequence: attention_tiles.h.
struct AttendTile {
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t first_block;  // index of the sequence's first block in the tables
  std::int32_t partition;
  std::int32_t begin;  // some of the rows see tokens [begin, end)
  std::int32_t end;
};

// Division of a row's heads into tiles: heads together in a tile, and tiles per group of heads that share K and V.
struct TileHeads {
  std::int32_t group = 0;  // heads that share K and V
  std::int32_t together = 0;
  std::int32_t parts = 0;
  std::int32_t inverse = 0;  // 2^16 / together, rounded up

  // Row of one of a tile's vectors, which are up to 64.
  QUIRE_DEVICE std::int32_t row_of(std::int32_t vector) const { return (vector * inverse) >> 16; }
};

struct AttentionArgs {
  KvLayerView kv;
  const AttendItem* items = nullptr;
  const AttendTile* tiles = nullptr;  // instead of items
  TileHeads heads;
  const MergeItem* rows = nullptr;
  const std::int32_t* block_tables = nullptr;
  const float* q = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t value_dim = 0;
  bool value_in_key = false;  // V is the first value_dim elements of K
  float scale = 1.0f;
  float softcap = 0.0f;           // 0: none
  const float* slopes = nullptr;  // [num_heads] subtracted from a score per token of distance; null: zero
  const float* sinks = nullptr;   // [num_heads] one more score, without a value; null: none
  float* partials = nullptr;      // [item][head][partial_floats(value_dim)]
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

inline constexpr float kToBase2 = 1.44269504f;

// Results of a partition: maximum, sum, two unused, weighted [value_dim]; sixteen bytes are aligned where four columns
// are.
inline constexpr int kPartialHead = 4;
constexpr std::int64_t partial_floats(std::int64_t value_dim) {
  return kPartialHead + value_dim;
}

QUIRE_DEVICE float* partial_of(const AttentionArgs& args, std::int64_t item, std::int64_t head) {
  return args.partials + (item * args.num_heads + head) * partial_floats(args.value_dim);
}

// A score to base 2 of a token, capped and less its distance as asked.
QUIRE_DEVICE float capped_score(const AttentionArgs& args, std::int64_t position, std::int64_t head, std::int64_t token,
                                float score) {
  if (args.softcap > 0.0f) {
    const float cap = args.softcap * kToBase2;
    score = tanh_of(score / cap) * cap;
  }
  if (args.slopes == nullptr || args.slopes[head] == 0.0f) return score;
  const std::int64_t distance = token < position ? position - token : token - position;
  return score - args.slopes[head] * kToBase2 * static_cast<float>(distance);
}

// A warp for each head of each row, 128 columns at a time. The factors of up to 32 partitions are computed together,
// one by each lane; then each lane takes four columns through them in order. Grid: x rows, y heads / 4.
struct MergePartitions {
  using Args = AttentionArgs;
  static constexpr int kThreads = 128;
  static constexpr int kColumns = 4;   // per lane
  static constexpr int kTogether = 4;  // partitions whose columns are loaded at once

  // Factors of a partition: for all before it and for its own, and its sum times the latter.
  struct alignas(16) Factors {
    float keep;
    float add;
    float sum;
    float unused;  // written and read with the others
  };
  static constexpr int kSharedBytes = kThreads * static_cast<int>(sizeof(Factors));

  // A row's result so far.
  struct Merged {
    float maximum;
    float sum;
    float weighted[kColumns];
  };

  static QUIRE_DEVICE float column(const Args& args, const float* part, int first, int c) {
    const int d = first + c * kWarpLanes;
    return d < static_cast<int>(args.value_dim) ? part[kPartialHead + d] : 0.0f;
  }

  // Factors of the lane's partition. `maximum`: before all of them; becomes that of all.
  template <class Thread>
  static QUIRE_DEVICE Factors factors_of(Thread& t, const float* part, float& maximum) {
    const float own = part == nullptr ? -__builtin_inff() : part[0];
    float before = maximum;
    float all = own;
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
      const float other = t.shuffle_xor(all, distance);
      if ((t.lane() & distance) != 0) before = greatest(before, other);
      all = greatest(all, other);
    }
    maximum = greatest(maximum, all);
    const float larger = greatest(before, own);
    const float add = exp2_of(own - larger);
    return {exp2_of(before - larger), add, part == nullptr ? 0.0f : part[1] * add, 0.0f};
  }

  // Partitions [0, count) of those whose factors there are. `parts`: the first one's results.
  static QUIRE_DEVICE void merge(const Args& args, const Factors* factors, const float* parts, int first, int count,
                                 Merged& row) {
    const std::int64_t stride = args.num_heads * (kPartialHead + args.value_dim);
    for (int i = 0; i < count; i += kTogether) {
      float values[kTogether][kColumns];
      QUIRE_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        QUIRE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          values[j][c] = i + j < count ? column(args, parts + (i + j) * stride, first, c) : 0.0f;
      }
      QUIRE_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        if (i + j >= count) break;
        const Factors by = factors[i + j];
        row.sum = row.sum * by.keep + by.sum;
        QUIRE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          row.weighted[c] = __builtin_fmaf(values[j][c], by.add, row.weighted[c] * by.keep);
      }
    }
  }

  // The result before the first merged partition: the sink, or else the first of all.
  static QUIRE_DEVICE Merged begin(const Args& args, std::int64_t head, const float* part, int first) {
    const bool has_sink = args.sinks != nullptr;
    Merged out;
    out.maximum = has_sink ? args.sinks[head] * kToBase2 : part[0];
    out.sum = has_sink ? 1.0f : part[1];
    QUIRE_UNROLL
    for (int c = 0; c < kColumns; ++c)
      out.weighted[c] = has_sink ? 0.0f : column(args, part, first, c);
    return out;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t head = t.block_y() * (kThreads / kWarpLanes) + t.warp();
    if (head >= args.num_heads) return;  // the whole warp
    Factors* factors = reinterpret_cast<Factors*>(t.shared()) + t.warp() * kWarpLanes;
    const MergeItem item = args.rows[t.block_x()];
    const auto dim = static_cast<int>(args.value_dim);
    for (int first = t.lane(); first - t.lane() < dim; first += kColumns * kWarpLanes) {
      Merged row = begin(args, head, partial_of(args, item.first_item, head), first);
      for (int i = args.sinks != nullptr ? 0 : 1; i < item.count; i += kWarpLanes) {
        const int count = item.count - i < kWarpLanes ? item.count - i : kWarpLanes;
        const float* parts = partial_of(args, item.first_item + i, head);
        const float* own = t.lane() < count ? partial_of(args, item.first_item + i + t.lane(), head) : nullptr;
        const Factors mine = factors_of(t, own, row.maximum);
        t.sync_warp();  // the previous factors have been read
        factors[t.lane()] = mine;
        t.sync_warp();
        merge(args, factors, parts, first, count, row);
      }
      float* out = args.out + t.block_x() * args.out_stride + head * dim + first;
      QUIRE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if (first + c * kWarpLanes < dim) out[c * kWarpLanes] = row.weighted[c] * (1.0f / row.sum);
      }
    }
  }
};

}  // namespace quire::gpu
