// Operands of attention in tiles (attention_tiles.h), in shared memory: the ring of K and V, which a warp fills
// with its group of 64 tokens, 32 columns at a time, and queries as sums of a high and a low float of 16 bits, those of
// f16 after they are multiplied by a power of two of their own. Invariant: tokens that no row of a tile sees are
// neither read nor found in the ring, where zeros stand for them.
#pragma once

#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/round_rows.h"

namespace quire::gpu {

// Two floats rounded to 16 bits each.
template <DType kHalf, class Thread>
QUIRE_DEVICE std::uint32_t halves_of(Thread& t, float first, float second) {
  if constexpr (kHalf == DType::kF16) return t.floats_to_halves(first, second);
  return t.floats_to_bfloats(first, second);
}

// The value of such a pair of floats.
template <DType kHalf, class Thread>
QUIRE_DEVICE float widened(Thread& t, std::uint32_t halves, int which) {
  if constexpr (kHalf == DType::kF16) return t.half_to_float(static_cast<std::uint16_t>(halves >> (16 * which)));
  return float_of_bits(which == 0 ? halves << 16 : halves & 0xffff0000u);
}

template <KvType kType, int kTiles, int kDim>
struct TileOperands {
  using Args = AttentionArgs;
  static constexpr DType kHalf = kType == KvType::kF16 ? DType::kF16 : DType::kBF16;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kVectors = 16 * kTiles;
  static constexpr bool kOwnVectors = kTiles > 1;  // per warp
  static_assert(kTiles == 1 || kTiles == kWarps);
  static constexpr int kGroups = kOwnVectors ? kWarps : 1;  // groups of tokens per warp
  static constexpr int kKeys = kPartitionTokens / kWarps;   // per group
  static constexpr int kSlice = 32;                         // columns of K or V
  static constexpr int kSliceBytes = 2 * kSlice;
  static constexpr int kStages = kOwnVectors && kDim > 128 ? 2 : 3;
  static constexpr int kBlocks = kOwnVectors ? 2 : 3;  // blocks that a multiprocessor's registers hold

  struct Shared {
    std::byte ring[kStages][kWarps][kKeys * kSliceBytes];  // per group
    // Queries in slices: [high, low][slice][vector]; then, once there are scores, what warps add up: [warp][element]
    // [lane].
    // The vector that there is not moves the next slice to other banks.
    std::byte queries[2][kDim / kSlice][kVectors + 1][kSliceBytes];
    float maxima[kWarps][16];
    float sums[kWarps][16];
    float factors[kVectors];  // factors of scores
  };
  static constexpr int kSharedBytes = sizeof(Shared);
  static_assert(sizeof(Shared::queries) >= kWarps * kLaneElements * kWarpLanes * sizeof(Words4));

  // Work of a block, and of a warp in it.
  struct Work {
    AttendTile tile;
    int first_token;  // first token of the partition
    int kv_head;
    int first_head;
    int num_vectors;       // vectors of the block that exist
    std::uint32_t groups;  // bit i: some row sees some of group i
    std::uint32_t own;     // the groups among them that the warp computes
    int key_slices;
    int value_slices;
  };

  static constexpr std::int32_t kNoSlice = 1 << 30;

  // Copies of a warp into the ring: its group's tokens of K, then of V.
  struct Feed {
    const std::byte* from[kKeys / 16];  // first token of each sixteen that this lane copies, in the next slice
    std::int32_t eight;                 // bytes of eight tokens
    std::int32_t columns;               // bytes to the next slice
    std::uint32_t tokens;               // bit i: some row sees token 8 * i + lane / 4
    std::int32_t next_slice;            // kNoSlice: none
  };

  // Sixteen bytes of a key in a stage.
  static QUIRE_DEVICE int chunk_at(int key, int chunk) { return key * kSliceBytes + 16 * (chunk ^ (key & 2)); }

  template <class Thread>
  static QUIRE_DEVICE int tile_of(Thread& t) {
    return kOwnVectors ? t.warp() : 0;
  }
  template <class Thread>
  static QUIRE_DEVICE int group_of(Thread& t, int number) {
    return kOwnVectors ? number : t.warp();
  }

  template <class Thread>
  static QUIRE_DEVICE Work work_of(Thread& t, const Args& args) {
    const TileHeads& heads = args.heads;
    Work out;
    out.tile = args.tiles[t.block_x()];
    out.first_token = out.tile.partition * kPartitionTokens;
    out.kv_head = static_cast<int>(t.block_y());
    int part = 0;
    if (heads.parts > 1) {
      part = out.kv_head % heads.parts;
      out.kv_head = out.kv_head / heads.parts;
    }
    const int left = heads.group - part * heads.together;
    out.first_head = out.kv_head * heads.group + part * heads.together;
    out.num_vectors = out.tile.num_rows * (left < heads.together ? left : heads.together);
    out.groups = 0;
    QUIRE_UNROLL
    for (int i = 0; i < kWarps; ++i) {
      const int begin = out.first_token + i * kKeys;
      if (begin < out.tile.end && begin + kKeys > out.tile.begin) out.groups |= 1u << i;
    }
    out.own = kOwnVectors ? out.groups : out.groups >> t.warp() & 1u;
    if (16 * tile_of(t) >= out.num_vectors) out.own = 0;
    out.key_slices = (static_cast<int>(args.kv.key_dim) + kSlice - 1) / kSlice;
    out.value_slices = (static_cast<int>(args.value_dim) + kSlice - 1) / kSlice;
    return out;
  }

  static QUIRE_DEVICE int row_of(const Args& args, const Work& work, int number) {
    return work.tile.first_row + args.heads.row_of(number);
  }
  static QUIRE_DEVICE int head_of(const Args& args, const Work& work, int number) {
    return work.first_head + number - args.heads.row_of(number) * args.heads.together;
  }

  template <class Thread>
  static QUIRE_DEVICE void feed_from(Thread& t, const Args& args, const Work& work, bool is_key, Feed& feed) {
    const KvLayerView& kv = args.kv;
    const bool from_keys = is_key || args.value_in_key;
    const std::int64_t offset =
        from_keys ? work.kv_head * kv.key_bytes : kv.value_offset + work.kv_head * kv.value_bytes;
    const int stride = 2 * static_cast<int>(from_keys ? kv.key_dim : kv.value_dim);
    const auto block_size = static_cast<int>(kv.block_size);
    const int first = work.first_token + t.warp() * kKeys;
    int block = first / block_size;
    int inside = first - block * block_size;
    QUIRE_UNROLL
    for (int i = 0; i < kKeys / 16; ++i) {
      const int token = first + 16 * i;
      feed.from[i] = kv.base + offset + (inside + t.lane() / 4) * stride + 16 * (t.lane() % 4);
      if (token < work.tile.end && token + 16 > work.tile.begin)
        feed.from[i] += args.block_tables[work.tile.first_block + block] * kv.block_stride;
      inside += 16;
      if (inside >= block_size) {
        inside = 0;
        ++block;
      }
    }
    feed.eight = 8 * stride;
    feed.columns = static_cast<int>(is_key ? kv.key_dim : args.value_dim);
  }

  template <class Thread>
  static QUIRE_DEVICE Feed first_feed(Thread& t, const Args& args, const Work& work) {
    Feed out;
    feed_from(t, args, work, true, out);
    out.tokens = 0;
    out.next_slice = (work.groups >> t.warp() & 1u) != 0 ? 0 : kNoSlice;
    QUIRE_UNROLL
    for (int i = 0; i < kKeys / 8; ++i) {
      const int token = work.first_token + t.warp() * kKeys + 8 * i + t.lane() / 4;
      if (token >= work.tile.begin && token < work.tile.end) out.tokens |= 1u << i;
    }
    return out;
  }

  // The next slice, zeros for what lies outside. Nothing if no row sees any of the warp's group.
  template <bool kMayBeKeys, class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Args& args, const Work& work, Shared& shared, Feed& feed) {
    if (kMayBeKeys && feed.next_slice == work.key_slices) feed_from(t, args, work, false, feed);
    if (feed.next_slice < work.key_slices + work.value_slices) {
      std::byte* stage = shared.ring[feed.next_slice % kStages][t.warp()] + chunk_at(t.lane() / 4, t.lane() % 4);
      if (feed.tokens == (1u << (kKeys / 8)) - 1u && feed.columns >= kSlice) {
        QUIRE_UNROLL
        for (int i = 0; i < kKeys / 8; ++i)
          t.copy_async(stage + 8 * i * kSliceBytes, feed.from[i / 2] + i % 2 * feed.eight);
      } else {
        QUIRE_UNROLL
        for (int i = 0; i < kKeys / 8; ++i) {
          if ((feed.tokens >> i & 1u) != 0 && 8 * (t.lane() % 4) < feed.columns) {
            t.copy_async(stage + 8 * i * kSliceBytes, feed.from[i / 2] + i % 2 * feed.eight);
          } else {
            *reinterpret_cast<Words4*>(stage + 8 * i * kSliceBytes) = Words4{};
          }
        }
      }
      QUIRE_UNROLL
      for (int i = 0; i < kKeys / 16; ++i)
        feed.from[i] += kSliceBytes;
      feed.columns -= kSlice;
    }
    t.commit_copies();
    ++feed.next_slice;
  }

  // Waits for the current slice and fetches the slice that replaces the previous one.
  template <bool kIsKey, class Thread>
  static QUIRE_DEVICE void take_slice(Thread& t, const Args& args, const Work& work, Shared& shared, Feed& feed) {
    t.template wait_copies<kStages - 2>();
    if constexpr (kOwnVectors) {
      t.sync_block();
    } else {
      t.sync_warp();
    }
    fetch<kIsKey>(t, args, work, shared, feed);
  }

  static constexpr int kPairs = kDim / (2 * kWarpLanes);  // pairs of columns per lane
  static constexpr int kTogether = 4;                     // vectors that a warp loads at once
  using QueryPairs = float[kPairs][2];

  // A vector's high and low parts, times a power of two of its own for f16.
  template <class Thread>
  static QUIRE_DEVICE void split_query(Thread& t, const Args& args, Shared& shared, int number,
                                       const QueryPairs& query) {
    HalfScale scale{1.0f, 1.0f};
    if constexpr (kType == KvType::kF16) {
      float bound = 0.0f;
      QUIRE_UNROLL
      for (int i = 0; i < 2 * kPairs; ++i) {
        const float value = query[i / 2][i % 2];
        const float magnitude = value < 0.0f ? -value : value;
        bound = bound > magnitude ? bound : magnitude;
      }
      scale = half_scale_of(warp_largest(t, bound));
    }
    if (t.lane() == 0) shared.factors[number] = scale.inverse * (args.scale * kToBase2);
    QUIRE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const float first = query[i][0] * scale.factor;
      const float second = query[i][1] * scale.factor;
      const std::uint32_t high = halves_of<kHalf>(t, first, second);
      const std::uint32_t low =
          halves_of<kHalf>(t, first - widened<kHalf>(t, high, 0), second - widened<kHalf>(t, high, 1));
      std::byte* to = &shared.queries[0][2 * i + t.lane() / 16][number][4 * (t.lane() % 16)];
      *reinterpret_cast<std::uint32_t*>(to) = high;
      *reinterpret_cast<std::uint32_t*>(to + sizeof(shared.queries[0])) = low;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void clear_query(Thread& t, Shared& shared, int number) {
    if (t.lane() == 0) shared.factors[number] = 0.0f;
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kPairs; ++i) {
      std::byte* to = &shared.queries[i % 2][i / 2 * 2 + t.lane() / 16][number][4 * (t.lane() % 16)];
      *reinterpret_cast<std::uint32_t*>(to) = 0;
    }
  }

  // A warp takes every fourth vector; absent vectors are zeros.
  template <class Thread>
  static QUIRE_DEVICE void split_queries(Thread& t, const Args& args, const Work& work, Shared& shared) {
    const auto dim = static_cast<int>(args.kv.key_dim);
    for (int first = t.warp(); first < kVectors; first += kTogether * kWarps) {
      QueryPairs queries[kTogether] = {};
      QUIRE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int number = first + i * kWarps;
        if (number >= work.num_vectors) continue;
        const float* query = args.q + row_of(args, work, number) * args.q_stride + head_of(args, work, number) * dim;
        QUIRE_UNROLL
        for (int pair = 0; pair < kPairs; ++pair) {
          const int d = 2 * (pair * kWarpLanes + t.lane());
          if (d >= dim) continue;
          queries[i][pair][0] = query[d];
          queries[i][pair][1] = query[d + 1];
        }
      }
      QUIRE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int number = first + i * kWarps;
        if (number < work.num_vectors) {
          split_query(t, args, shared, number, queries[i]);
        } else {
          clear_query(t, shared, number);
        }
      }
    }
  }
};

}  // namespace quire::gpu
