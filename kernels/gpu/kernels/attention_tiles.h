// attend_tiles: paged attention over caches of f16 and bf16 by mma.m16n8k16. A block computes 16 * kTiles query vectors
// (rows of one sequence times heads that share K and V) over one partition of 256 tokens, four groups of 64. K and V go
// through a ring, 32 columns at a time. With 16 vectors each warp takes one group of tokens; with 64 each warp takes 16
// vectors and all groups. Queries and weights are sums of a high and a low float of 16 bits, multiplied one after the
// other. A score is one chain over the head; 2^(score - the partition's maximum) weighs V in one chain over a group;
// sums of the groups are added in order. Invariant: a vector's arithmetic is the same in both forms, whatever else is
// in the batch. Tokens that a row does not see weigh zero: values that another row of its tile sees must be finite.
#pragma once

#include "kernels/gpu/kernels/attention_operands.h"

namespace quire::gpu {

// 2^(x + kExponent) for x <= 0, like exp2_of; zero if less than 2^-126 of the largest.
template <int kExponent>
QUIRE_DEVICE float weight_of(float x) {
  constexpr float kRounding = 12582912.0f + kExponent;
  const float shifted = x + kRounding;
  const float power = exp2_fraction(x - (shifted - kRounding));
  const float weight = float_of_bits(bits_of_float(power) + (bits_of_float(shifted) << 23));
  return x > -126.0f ? weight : 0.0f;
}

// kDim: the longest key. Grid: x tiles, y K/V heads times TileHeads::parts.
template <KvType kType, int kTiles, int kDim>
struct AttendTiles : TileOperands<kType, kTiles, kDim> {
  using Operands = TileOperands<kType, kTiles, kDim>;
  using Operands::chunk_at;
  using Operands::group_of;
  using Operands::head_of;
  using Operands::kGroups;
  using Operands::kHalf;
  using Operands::kKeys;
  using Operands::kOwnVectors;
  using Operands::kSlice;
  using Operands::kSliceBytes;
  using Operands::kStages;
  using Operands::kWarps;
  using Operands::row_of;
  using Operands::tile_of;
  using typename Operands::Args;
  using typename Operands::Feed;
  using typename Operands::Shared;
  using typename Operands::Work;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kValueTiles = kSlice / 8;
  static constexpr int kInterleaved = 4;  // chains of scores: an instruction waits for the one before it in its chain
  static constexpr int kWeightExponent = kType == KvType::kF16 ? 14 : 0;
  static constexpr float kWeightUnit = kType == KvType::kF16 ? 1.0f / 16384.0f : 1.0f;

  using Scores = float[kGroups][kKeyTiles][kLaneElements];

  // A query vector of a lane: what its row sees, in tokens of the partition.
  struct Vector {
    int number;
    int begin;
    int end;
  };

  // The token of column `place` of eight scores. So placed, K and V are read without conflicts of banks.
  static QUIRE_DEVICE int key_of(int key_tile, int place) {
    return 8 * key_tile + 4 * (place % 2) + ((place / 2) ^ (place % 2));
  }
  // Scores of a slice of the columns, added to what there is.
  template <class Thread>
  static QUIRE_DEVICE void score_slice(Thread& t, const Work& work, const Shared& shared, int slice, Scores& scores) {
    LaneWeights parts[2];
    QUIRE_UNROLL
    for (int part = 0; part < 2; ++part) {
      const std::byte* from = shared.queries[part][slice][16 * tile_of(t)] + 16 * t.lane();  // reaches over eight rows
      parts[part] = {load_as<Words4>(from), load_as<Words4>(from + 8 * kSliceBytes)};
    }
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if ((work.own >> g & 1u) == 0) continue;
      const std::byte* stage = shared.ring[slice % kStages][group_of(t, g)];
      QUIRE_UNROLL
      for (int k = 0; k < kKeyTiles; k += kInterleaved) {
        Words4 keys[kInterleaved];
        QUIRE_UNROLL
        for (int i = 0; i < kInterleaved; ++i)
          keys[i] = load_as<Words4>(stage + chunk_at(key_of(k + i, t.lane() / 4), t.lane() % 4));
        QUIRE_UNROLL
        for (int i = 0; i < 4 * kInterleaved; ++i) {
          const int step = i / kInterleaved;  // all columns by high parts, then by low ones
          const LaneWeights& part = parts[step / 2];
          const Words4& key = keys[i % kInterleaved];
          const int at = step % 2 * 2;
          multiply_halves<kHalf>(t, scores[g][k + i % kInterleaved], part.low.of[at], part.high.of[at],
                                 part.low.of[at + 1], part.high.of[at + 1], key.of[at], key.of[at + 1]);
        }
      }
    }
  }

  // A lane has, of two vectors, elements 2 * half and 2 * half + 1 of each eight scores. Absent vectors see all that
  // the tile sees.
  template <class Thread>
  static QUIRE_DEVICE Vector vector_of(Thread& t, const Args& args, const Work& work, int half) {
    Vector out{16 * tile_of(t) + 8 * half + t.lane() / 4, work.tile.begin, work.tile.end};
    if (out.number < work.num_vectors) {
      const MergeItem& row = args.rows[row_of(args, work, out.number)];
      out.begin = row.begin;
      out.end = row.end;
    }
    out.begin -= work.first_token;
    out.end -= work.first_token;
    return out;
  }

  // Stores one by one, always the first in line: registers cannot be indexed at run time.
  template <class Thread>
  static QUIRE_DEVICE void cap_scores(Thread& t, const Args& args, const Work& work, const Vector& vector, int half,
                                      int first, float (&scores)[kKeyTiles][kLaneElements]) {
    if (vector.number >= work.num_vectors) return;
    const std::int64_t position = args.rows[row_of(args, work, vector.number)].position;
    const std::int64_t head = head_of(args, work, vector.number);
    QUIRE_ROLLED
    for (int i = 0; i < 2 * kKeyTiles; ++i) {
      const int token = work.first_token + first + key_of(i / 2, 2 * (t.lane() % 4) + i % 2);
      const float capped = capped_score(args, position, head, token, scores[0][2 * half]);
      QUIRE_UNROLL
      for (int k = 0; k < kKeyTiles; ++k) {
        scores[k][2 * half] = scores[k][2 * half + 1];
        scores[k][2 * half + 1] = k + 1 < kKeyTiles ? scores[(k + 1) % kKeyTiles][2 * half] : capped;
      }
    }
  }

  // Scores of a group as the softmax takes them, minus infinity where the row does not see; returns a lane's largest.
  template <class Thread>
  static QUIRE_DEVICE float finish_group(Thread& t, const Args& args, const Work& work, const Vector& vector, int half,
                                         int group, const Shared& shared, float (&scores)[kKeyTiles][kLaneElements]) {
    const float factor = shared.factors[vector.number];
    const int first = group * kKeys;
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kKeyTiles; ++i) {
      float& score = scores[i / 2][2 * half + i % 2];
      score = score * factor;
    }
    if (args.softcap > 0.0f || args.slopes != nullptr) cap_scores(t, args, work, vector, half, first, scores);
    if (vector.begin > first || vector.end < first + kKeys) {
      QUIRE_UNROLL
      for (int i = 0; i < 2 * kKeyTiles; ++i) {
        const int token = first + key_of(i / 2, 2 * (t.lane() % 4) + i % 2);
        if (token < vector.begin || token >= vector.end) scores[i / 2][2 * half + i % 2] = -__builtin_inff();
      }
    }
    float largest = -__builtin_inff();
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kKeyTiles; ++i)
      largest = greatest(scores[i / 2][2 * half + i % 2], largest);
    return largest;
  }

  // The largest score of a vector among the warp's groups, in each of its four lanes.
  template <class Thread>
  static QUIRE_DEVICE float finish_scores(Thread& t, const Args& args, const Work& work, int half, Shared& shared,
                                          Scores& scores) {
    const Vector vector = vector_of(t, args, work, half);
    float mine = -__builtin_inff();
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g)
      mine = greatest(finish_group(t, args, work, vector, half, group_of(t, g), shared, scores[g]), mine);
    for (int distance = 1; distance < 4; distance *= 2)
      mine = greatest(t.shuffle_xor(mine, distance), mine);
    return mine;
  }

  // Weights of V as operands: pairs of high parts of both vectors, then of low parts, for eight tokens each.
  struct Weights {
    std::uint32_t high[kGroups][kKeyTiles][2];
    std::uint32_t low[kGroups][kKeyTiles][2];
  };

  // Two scores of a vector become weights, which are added to a sum.
  template <class Thread>
  static QUIRE_DEVICE void soften(Thread& t, int half, float maximum, const float (&scores)[kLaneElements],
                                  std::uint32_t (&high)[2], std::uint32_t (&low)[2], float& sum) {
    const float first = weight_of<kWeightExponent>(scores[2 * half] - maximum);
    const float second = weight_of<kWeightExponent>(scores[2 * half + 1] - maximum);
    sum = sum + first;
    sum = sum + second;
    high[half] = halves_of<kHalf>(t, first, second);
    low[half] =
        halves_of<kHalf>(t, first - widened<kHalf>(t, high[half], 0), second - widened<kHalf>(t, high[half], 1));
  }

  // Sum of the weights of one group: each lane's is one chain, their sum a tree of four.
  template <class Thread>
  static QUIRE_DEVICE float sum_of_lanes(Thread& t, float sum) {
    for (int distance = 1; distance < 4; distance *= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    return sum;
  }

  // Weights of the warp's own vectors. Both halves of a score's registers go at once: they become operands in place.
  template <class Thread>
  static QUIRE_DEVICE void soften_own(Thread& t, const float (&maxima)[2], const Scores& scores, Weights& out,
                                      float (&totals)[2]) {
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      float sums[2] = {0.0f, 0.0f};
      QUIRE_UNROLL
      for (int i = 0; i < 2 * kKeyTiles; ++i)
        soften(t, i % 2, maxima[i % 2], scores[g][i / 2], out.high[g][i / 2], out.low[g][i / 2], sums[i % 2]);
      QUIRE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = sum_of_lanes(t, sums[half]);
        totals[half] = g == 0 ? sum : totals[half] + sum;
      }
    }
  }

  // Four columns of two tokens each, as four operands: of columns lane / 4 * 4 + 0, 1, 2, 3.
  template <class Thread>
  static QUIRE_DEVICE void load_values(Thread& t, const std::byte* stage, int key_tile, std::uint32_t (&out)[4]) {
    Words2 of_tokens[2];
    QUIRE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int key = key_of(key_tile, 2 * (t.lane() % 4) + i);
      of_tokens[i] = load_as<Words2>(stage + chunk_at(key, t.lane() / 8) + 8 * (t.lane() / 4 % 2));
    }
    QUIRE_UNROLL
    for (int i = 0; i < 4; ++i)
      out[i] = t.byte_permute(of_tokens[0].of[i / 2], of_tokens[1].of[i / 2], i % 2 == 0 ? 0x5410u : 0x7632u);
  }

  using Sums = float[kValueTiles][kLaneElements];

  // Sums over a group's tokens for a slice of the columns.
  template <class Thread>
  static QUIRE_DEVICE void weigh_group(Thread& t, const Weights& w, int g, const std::byte* stage, Sums& acc) {
    QUIRE_UNROLL
    for (int k = 0; k < kKeyTiles; k += 2) {
      std::uint32_t first[4];
      std::uint32_t second[4];
      load_values(t, stage, k, first);
      load_values(t, stage, k + 1, second);
      QUIRE_UNROLL
      for (int i = 0; i < kValueTiles; ++i)
        multiply_halves<kHalf>(t, acc[i], w.high[g][k][0], w.high[g][k][1], w.high[g][k + 1][0], w.high[g][k + 1][1],
                               first[i], second[i]);
      QUIRE_UNROLL
      for (int i = 0; i < kValueTiles; ++i)
        multiply_halves<kHalf>(t, acc[i], w.low[g][k][0], w.low[g][k][1], w.low[g][k + 1][0], w.low[g][k + 1][1],
                               first[i], second[i]);
    }
  }

  // The sums of the warp's groups, in order.
  template <class Thread>
  static QUIRE_DEVICE void weigh(Thread& t, const Work& work, const Shared& shared, const Weights& weights, int slice,
                                 Sums& total) {
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      Sums acc = {};
      if ((work.own >> g & 1u) != 0) weigh_group(t, weights, g, shared.ring[slice % kStages][group_of(t, g)], acc);
      QUIRE_UNROLL
      for (int i = 0; i < kValueTiles * kLaneElements; ++i) {
        const float sum = acc[i / kLaneElements][i % kLaneElements];
        float& to = total[i / kLaneElements][i % kLaneElements];
        to = g == 0 ? sum : to + sum;
      }
    }
  }

  // Destination of a vector's results of this partition; null where its row sees nothing of it.
  static QUIRE_DEVICE float* results_of(const Args& args, const Work& work, int number) {
    if (number >= work.num_vectors) return nullptr;
    const MergeItem& row = args.rows[row_of(args, work, number)];
    const int item = work.tile.partition - row.begin / kPartitionTokens;
    if (item < 0 || item >= row.count) return nullptr;
    return partial_of(args, row.first_item + item, head_of(args, work, number));
  }

  // Four columns of an element: value tile i has every fourth of the slice's.
  template <class Thread>
  static QUIRE_DEVICE int column_of(Thread& t, int slice, int element) {
    return slice * kSlice + 4 * (2 * (t.lane() % 4) + element % 2);
  }

  static QUIRE_DEVICE Words4 words_of(const Sums& sums, int element, float factor) {
    return {{bits_of_float(sums[0][element] * factor), bits_of_float(sums[1][element] * factor),
             bits_of_float(sums[2][element] * factor), bits_of_float(sums[3][element] * factor)}};
  }

  static QUIRE_DEVICE Words4& shared_sum(Shared& shared, int warp, int element, int lane) {
    auto* sums = reinterpret_cast<Words4*>(&shared.queries[0][0][0][0]);
    return sums[(warp * kLaneElements + element) * kWarpLanes + lane];
  }

  // Adds up the warps' sums of a slice: a warp adds one element of all lanes.
  template <class Thread>
  static QUIRE_DEVICE void add_slice(Thread& t, const Args& args, Shared& shared, int slice, float* out) {
    const int column = column_of(t, slice, t.warp());
    if (out == nullptr || column >= static_cast<int>(args.value_dim)) return;
    Words4 parts[kWarps];
    QUIRE_UNROLL
    for (int warp = 0; warp < kWarps; ++warp)
      parts[warp] = shared_sum(shared, warp, t.warp(), t.lane());
    Words4 total;
    QUIRE_UNROLL
    for (int c = 0; c < 4; ++c) {
      float sum = float_of_bits(parts[0].of[c]);
      QUIRE_UNROLL
      for (int warp = 1; warp < kWarps; ++warp)
        sum = sum + float_of_bits(parts[warp].of[c]);
      total.of[c] = bits_of_float(sum * kWeightUnit);
    }
    *reinterpret_cast<Words4*>(out + kPartialHead + column) = total;
  }

  // Sixteen vectors: the warps' groups meet in shared memory.
  template <class Thread>
  static QUIRE_DEVICE void finish_together(Thread& t, const Args& args, const Work& work, Shared& shared, Feed& feed,
                                           Scores& scores) {
    const int num_halves = work.num_vectors > 8 ? 2 : 1;
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (half >= num_halves) break;
      const float mine = finish_scores(t, args, work, half, shared, scores);
      if (t.lane() % 4 == 0) shared.maxima[t.warp()][8 * half + t.lane() / 4] = mine;
    }
    t.sync_block();  // all maxima are known, and the queries are unused
    Weights weights = {};
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (half >= num_halves) break;
      const int number = 8 * half + t.lane() / 4;
      const float maximum = maximum_of(shared, number);
      float sum = 0.0f;
      QUIRE_UNROLL
      for (int k = 0; k < kKeyTiles; ++k)
        soften(t, half, maximum, scores[0][k], weights.high[0][k], weights.low[0][k], sum);
      sum = sum_of_lanes(t, sum);
      if (t.lane() % 4 == 0) shared.sums[t.warp()][number] = sum;
    }
    float* out = results_of(args, work, t.lane() / 4 + 8 * (t.warp() / 2));
    for (int slice = 0; slice < work.value_slices; ++slice) {
      if (slice > 0) t.sync_block();  // the sums of the slice before have been read
      Operands::template take_slice<false>(t, args, work, shared, feed);
      Sums sums;
      weigh(t, work, shared, weights, work.key_slices + slice, sums);
      QUIRE_UNROLL
      for (int e = 0; e < 2 * num_halves; ++e)
        shared_sum(shared, t.warp(), e, t.lane()) = words_of(sums, e, 1.0f);
      t.sync_block();
      add_slice(t, args, shared, slice, out);
      if (slice == 0) write_softmax(t, args, work, shared);
    }
  }

  static QUIRE_DEVICE float maximum_of(const Shared& shared, int vector) {
    float maximum = shared.maxima[0][vector];
    QUIRE_UNROLL
    for (int warp = 1; warp < kWarps; ++warp)
      maximum = greatest(maximum, shared.maxima[warp][vector]);
    return maximum;
  }

  template <class Thread>
  static QUIRE_DEVICE void write_softmax(Thread& t, const Args& args, const Work& work, const Shared& shared) {
    float* out = results_of(args, work, t.index());
    if (out == nullptr) return;
    out[0] = maximum_of(shared, t.index());
    float sum = shared.sums[0][t.index()];
    for (int warp = 1; warp < kWarps; ++warp)
      sum = sum + shared.sums[warp][t.index()];
    out[1] = sum * kWeightUnit;
  }

  // Finishes the vectors of one warp, which has all of their sums.
  template <class Thread>
  static QUIRE_DEVICE void finish_own(Thread& t, const Args& args, const Work& work, Shared& shared, Feed& feed,
                                      Scores& scores) {
    Weights weights;
    float maxima[2];
    float sums[2];
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half)
      maxima[half] = finish_scores(t, args, work, half, shared, scores);
    soften_own(t, maxima, scores, weights, sums);
    float* out[2];
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      out[half] = results_of(args, work, 16 * t.warp() + 8 * half + t.lane() / 4);
      if (out[half] == nullptr || t.lane() % 4 != 0) continue;
      out[half][0] = maxima[half];
      out[half][1] = sums[half] * kWeightUnit;
    }
    for (int slice = 0; slice < work.value_slices; ++slice) {
      Operands::template take_slice<false>(t, args, work, shared, feed);
      if (work.own == 0) continue;
      Sums weighed;
      weigh(t, work, shared, weights, work.key_slices + slice, weighed);
      QUIRE_UNROLL
      for (int e = 0; e < kLaneElements; ++e) {
        const int column = column_of(t, slice, e);
        if (out[e / 2] == nullptr || column >= static_cast<int>(args.value_dim)) continue;
        *reinterpret_cast<Words4*>(out[e / 2] + kPartialHead + column) = words_of(weighed, e, kWeightUnit);
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto& shared = *reinterpret_cast<Shared*>(t.shared());
    const Work work = Operands::work_of(t, args);
    Feed feed = Operands::first_feed(t, args, work);
    QUIRE_ROLLED
    for (int early = 0; early < kStages - 1; ++early)
      Operands::template fetch<true>(t, args, work, shared, feed);
    Operands::split_queries(t, args, work, shared);
    if constexpr (!kOwnVectors) t.sync_block();
    Scores scores = {};
    for (int slice = 0; slice < work.key_slices; ++slice) {
      Operands::template take_slice<true>(t, args, work, shared, feed);
      if (work.own != 0) score_slice(t, work, shared, slice, scores);
    }
    if constexpr (kOwnVectors) {
      finish_own(t, args, work, shared, feed, scores);
    } else {
      finish_together(t, args, work, shared, feed, scores);
    }
  }
};

}  // namespace quire::gpu
