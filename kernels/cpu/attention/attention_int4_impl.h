// Attention over an int4 cache: values are minimum + scale * code, with a scale and a minimum for each group of
// features of a token and head. Any thread. Included by an ISA level's file; internal linkage.
// Invariant: sums go over features, and over tokens, in order, whatever other queries or heads are worked on.
#pragma once

#include "kernels/cpu/attention/attention_masked_impl.h"
#include "kernels/cpu/products/quantize_impl.h"

namespace quire {
namespace {

struct KvI4 {
  static constexpr bool kScaled = false;  // probabilities meet the scales group by group
  static constexpr bool kGrouped = true;
};

// Bytes of codes of a head's K or V in a block.
inline std::int64_t int4_code_bytes(const KvHeadView& kv, std::int64_t dim) {
  return kv.block_size * dim / 2;
}

// The f16 scales of a group of `dim` features, of a place's tokens; minima lie `groups` times block_size behind.
inline const std::uint16_t* int4_scales(const KvHeadView& kv, const std::byte* first, std::int64_t dim,
                                        std::int64_t group, std::int64_t inside) {
  const auto* scales = reinterpret_cast<const std::uint16_t*>(first + int4_code_bytes(kv, dim));
  return scales + group * kv.block_size + inside;
}

// Prefetches a share of a block's K or V, codes and scales, from `ahead` on: the share that one vector of tokens has of
// a block. All vectors of a block together prefetch the whole.
inline void fetch_int4_block(const std::byte* ahead, std::int64_t dim, std::int64_t group_dim, std::int64_t inside) {
  const std::int64_t token_bytes = dim / 2 + groups_of(dim, group_dim) * 4;
  const std::byte* part = ahead + inside * token_bytes;
  for (std::int64_t at = 0; at < Simd::kLanes * token_bytes; at += 64)
    __builtin_prefetch(part + at);
}

// Queries over an int4 cache: [head_dim / 32][kQueryTile] blocks of eight bits with a scale for 32 features; then, for
// each group of K's features, the queries' sums times that scale: the contribution of a minimum of one.
struct Int4Queries {
  const ActBlock* blocks;
  const float* sums;
};

inline std::int64_t num_query_blocks(std::int64_t head_dim) {
  return padded_depth(head_dim) / kQuantBlock;
}

inline Int4Queries int4_queries(const QueryTile& tile, std::int64_t head_dim) {
  const auto* blocks = reinterpret_cast<const ActBlock*>(tile.queries);
  return {blocks, reinterpret_cast<const float*>(blocks + num_query_blocks(head_dim) * kQueryTile)};
}

void pack_int4_queries(const float* const* rows, std::int64_t count, std::int64_t head_dim, float* out) {
  constexpr float kStart = -32.0f;  // factor of a half's sum in start[3] and [4]
  auto* blocks = reinterpret_cast<ActBlock*>(out);
  auto* sums = reinterpret_cast<float*>(blocks + num_query_blocks(head_dim) * kQueryTile);
  for (std::int64_t i = 0; i < padded_tile_rows(count); ++i) {
    const float* row = rows[i < count ? i : 0];
    for (std::int64_t b = 0; b < num_query_blocks(head_dim); ++b) {
      ActBlock& block = blocks[b * kQueryTile + i];
      quantize_block(row + b * kQuantBlock, block);
      for (int half = 0; half < 2; ++half)
        sums[(2 * b + half) * kQueryTile + i] = block.scale * (static_cast<float>(block.start[3 + half]) / kStart);
    }
  }
}

// 32 features of vectors of tokens, as a dot product takes them: groups of four features, by Columns' lanes.
template <int kVecs>
struct Int4Words {
  static constexpr int kShift = 0;
  static constexpr int kParts = Simd::kLanes / Columns::kLanes;  // Columns' vectors of a vector of tokens
  const std::uint8_t* at[kVecs];                                 // words of the first eight features
  std::int64_t row_bytes;                                        // distance to the next eight features' words

  [[gnu::always_inline]] typename Columns::B operator()(int part, int group) const {
    const std::uint8_t* words = at[part / kParts] + group / 2 * row_bytes + part % kParts * 4 * Columns::kLanes;
    const typename Columns::B codes = Columns::load_bytes(words);
    return group % 2 == 0 ? Columns::low_nibbles(codes) : Columns::high_nibbles(codes);
  }
};

// total += half kHalf of a block's 32 features, and the minima's share of it; partial: its sum before the block's
// scale.
template <int kHalf, int kCount, int kVecs>
[[gnu::always_inline]] inline void score_int4_half(const KvHeadView& kv, const Int4Words<kVecs>& words,
                                                   const ActBlock* queries, const float* sums, const Place* places,
                                                   std::int64_t group, typename Simd::F (*partial)[kCount],
                                                   typename Simd::F (*total)[kCount]) {
  using F = typename Simd::F;
  constexpr int kParts = Int4Words<kVecs>::kParts;
  const std::int64_t minima = groups_of(kv.head_dim, kKeyGroup) * kv.block_size;
  typename Columns::F dots[kCount][kVecs * kParts];
  Columns::template dot<4, 4 * kHalf, 4 * kHalf + 4, kVecs * kParts, kCount>(words, queries, {}, dots);
  for (int v = 0; v < kVecs; ++v) {
    const std::uint16_t* scales =
        int4_scales(kv, kv.base + places[v].block, kv.head_dim, group + kHalf, places[v].inside);
    const F scale = Simd::load_f16(scales);
    const F minimum = Simd::load_f16(scales + minima);
    for (int q = 0; q < kCount; ++q) {
      F dot;
      __builtin_memcpy(&dot, &dots[q][v * kParts], sizeof dot);
      partial[v][q] = kHalf == 0 ? Simd::mul(dot, scale) : Simd::fma(dot, scale, partial[v][q]);
      total[v][q] = Simd::fma(Simd::set1(sums[kHalf * kQueryTile + q]), minimum, total[v][q]);
    }
  }
}

template <int kCount, int kVecs>
void score_int4_vectors(const KvHeadView& kv, const QueryTile& tile, const Place* places, float* scores) {
  using F = typename Simd::F;
  const Int4Queries queries = int4_queries(tile, kv.head_dim);
  F total[kVecs][kCount];
  for (int v = 0; v < kVecs; ++v) {
    for (int q = 0; q < kCount; ++q)
      total[v][q] = Simd::zero();
  }
  // V's scales and minima, too: the sums over V begin with the minima of all tokens.
  for (int v = 0; v < kVecs; ++v) {
    const std::byte* ahead = kv.base + places[v].ahead_of_key + (places[v].key_before_value ? kv.value_offset : 0);
    fetch_int4_block(ahead, kv.head_dim, kKeyGroup, places[v].inside);
    const std::byte* values = kv.base + places[v].block + kv.value_offset;
    for (std::int64_t row = 0; row < 2 * kv.padded_dim / kValueGroup; ++row)
      __builtin_prefetch(int4_scales(kv, values, kv.padded_dim, row, places[v].inside));
  }
  Int4Words<kVecs> words;
  words.row_bytes = 4 * kv.block_size;
  for (std::int64_t begin = 0; begin < kv.head_dim; begin += kQuantBlock) {
    const ActBlock* block = queries.blocks + begin / kQuantBlock * kQueryTile;
    const std::int64_t group = begin / kKeyGroup;
    const float* sums = queries.sums + group * kQueryTile;
    for (int v = 0; v < kVecs; ++v) {
      words.at[v] = reinterpret_cast<const std::uint8_t*>(kv.base + places[v].block) +
                    begin / kWordCodes * words.row_bytes + places[v].inside * 4;
    }
    F partial[kVecs][kCount];
    score_int4_half<0, kCount, kVecs>(kv, words, block, sums, places, group, partial, total);
    if (begin + kKeyGroup < kv.head_dim)
      score_int4_half<1, kCount, kVecs>(kv, words, block, sums, places, group, partial, total);
    for (int v = 0; v < kVecs; ++v) {
      for (int q = 0; q < kCount; ++q)
        total[v][q] = Simd::fma(partial[v][q], Simd::set1(block[q].scale), total[v][q]);
    }
  }
  const F factor = Simd::set1(tile.scale * 1.44269504f);  // to base 2
  for (int v = 0; v < kVecs; ++v) {
    for (int q = 0; q < kCount; ++q)
      Simd::store(scores + q * kPartition + v * Simd::kLanes, Simd::mul(total[v][q], factor));
  }
}

// kTokenVecs leaves registers for three results of each vector and query.
template <int kCount, int kTokenVecs>
void score_int4_keys(const KvHeadView& kv, const QueryTile& tile, const Place* places, float* scores) {
  constexpr int kMost = kCount < 8 ? 8 / kCount : 1;
  constexpr int kAtOnce = kMost < kTokenVecs ? kMost : kTokenVecs;
  for (int v = 0; v < kTokenVecs; v += kAtOnce)
    score_int4_vectors<kCount, kAtOnce>(kv, tile, places + v, scores + v * Simd::kLanes);
}

// Lanes of a partition's vectors that hold tokens of the context; others may lie in memory never written.
struct KnownTokens {
  std::int64_t first;  // distance from the first vector's first token
  std::int64_t end;

  [[gnu::always_inline]] typename Simd::F keep(typename Simd::F x, std::int64_t vec) const {
    return keep_lanes(x, first - vec * Simd::kLanes, end - vec * Simd::kLanes);
  }
};

inline KnownTokens known_tokens(const QueryTile& tile, const Places& places, std::int64_t first_token) {
  const std::int64_t hidden = tile.mask == nullptr ? 0 : tile.mask->first[0] - first_token;
  return {hidden, places.num_tokens};
}

// Weights with which a tile's queries sum over a head's partition of V, by group of features. A token's weight in a sum
// is its probability times its scale; sums are of integers, and weights are relative to the query's largest, in 15
// bits.
struct Int4Weights {
  float minima[kMostValueGroups][kQueryTile];   // the sums of probabilities times minima
  float largest[kMostValueGroups][kQueryTile];  // weights
};

constexpr float kMostWeight = 32767.0f;
static_assert(kPartition * 15 * 32767LL < (1LL << 31), "a sum of all tokens fits 32 bits");

// Sums of integers begin at zero; they lie where their results will.
template <int kCount>
void begin_int4_sums(const KvHeadView& kv, const Places& places, const KnownTokens& known, const float* scores,
                     Int4Weights* out, float* weighted) {
  using F = typename Simd::F;
  constexpr int kAtOnce = kCount < 4 ? kCount : 4;
  const std::int64_t groups = kv.padded_dim / kValueGroup;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (int first = 0; first < kCount; first += kAtOnce) {
      F minima[kAtOnce];
      F largest[kAtOnce];
      for (int q = 0; q < kAtOnce; ++q)
        minima[q] = largest[q] = Simd::zero();
      for (std::int64_t i = 0; i < places.num_vecs; ++i) {
        const std::byte* values = kv.base + places.at[i].block + kv.value_offset;
        const std::int64_t inside = places.at[i].inside;
        const F scale = known.keep(Simd::load_f16(int4_scales(kv, values, kv.padded_dim, group, inside)), i);
        const F minimum = known.keep(Simd::load_f16(int4_scales(kv, values, kv.padded_dim, groups + group, inside)), i);
        for (int q = 0; q < kAtOnce; ++q) {
          const F p = Simd::load(scores + (first + q) * kPartition + i * Simd::kLanes);
          minima[q] = Simd::fma(p, minimum, minima[q]);
          largest[q] = Simd::max(Simd::mul(p, scale), largest[q]);
        }
      }
      for (int q = 0; q < kAtOnce; ++q) {
        out->minima[group][first + q] = Simd::reduce_add(minima[q]);
        out->largest[group][first + q] = Simd::reduce_max(largest[q]);
      }
    }
  }
  for (std::int64_t d = 0; d < kCount * kv.padded_dim; d += Simd::kLanes)
    Simd::store_ints(weighted + d, Simd::no_ints());
}

template <int kCount>
void end_int4_sums(const KvHeadView& kv, const Int4Weights& weights, float* weighted) {
  for (int q = 0; q < kCount; ++q) {
    for (std::int64_t d = 0; d < kv.padded_dim; d += Simd::kLanes) {
      const std::int64_t group = d / kValueGroup;
      float* at = weighted + q * kv.padded_dim + d;
      const typename Simd::F one = Simd::set1(weights.largest[group][q] / kMostWeight);
      Simd::store(at, Simd::fma(Simd::to_float(Simd::load_ints(at)), one, Simd::set1(weights.minima[group][q])));
    }
  }
}

// Shape of the product of a query tile with the codes of V: byte vectors of a group, halves of their nibbles, and
// groups processed at once, chosen by the registers that the sums take.
template <int kCount>
struct Int4ValueShape {
  static constexpr int kByteVecs = kValueGroup / 2 / Simd::kLanes;
  static constexpr bool kWide = Simd::kValueVecs > 1;  // thirty-two registers
  static constexpr int kRowVecs = kCount <= 2 ? kByteVecs : 1;
  static constexpr int kHalves = kCount < 8 || kWide ? 2 : 1;
  static constexpr int kGroups = !kWide || kCount == 8 ? 1 : kCount == 4 ? 2 : 4;
};

// Sums of weights times codes over the vectors of tokens [begin, end), added to those in weighted[q][..], for kGroups
// groups from `group` on. weights: [kGroups][kQueryTile][kPartition]. byte: the first in a group, half: of the nibbles.
template <int kCount, int kGroups>
void weigh_int4_columns(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end,
                        const std::int16_t* weights, std::int64_t group, std::int64_t byte, int half, float* weighted) {
  using Shape = Int4ValueShape<kCount>;
  constexpr int kRowVecs = kGroups * Shape::kRowVecs;
  const auto column = [&](int v, int h) {
    const std::int64_t of_group = byte + v % Shape::kRowVecs * Simd::kLanes + (half + h) * kValueGroup / 2;
    return (group + v / Shape::kRowVecs) * kValueGroup + of_group;
  };
  typename Simd::I acc[kCount][kRowVecs][Shape::kHalves];
  for (int q = 0; q < kCount; ++q) {
    for (int v = 0; v < kRowVecs; ++v) {
      for (int h = 0; h < Shape::kHalves; ++h)
        acc[q][v][h] = Simd::load_ints(weighted + q * kv.padded_dim + column(v, h));
    }
  }
  const std::int64_t row_bytes = kv.padded_dim / 2;
  const bool fetches = group == 0 && byte == 0 && half == 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const Place& place = places.at[i];
    const std::byte* row = kv.base + place.block + kv.value_offset + place.inside * row_bytes;
    if (fetches) {
      const std::byte* ahead = kv.base + place.ahead_of_value + (place.value_before_key ? 0 : kv.value_offset);
      fetch_int4_block(ahead, kv.padded_dim, kValueGroup, place.inside);
    }
    const auto* value = reinterpret_cast<const std::uint8_t*>(row) + group * kValueGroup / 2 + byte;
    const std::int16_t* pair = weights + i * Simd::kLanes;
    const std::int64_t left = places.num_tokens - i * Simd::kLanes;
    const std::int16_t* stop = pair + (left < Simd::kLanes ? left : Simd::kLanes);
    for (; pair < stop; pair += 2, value += 2 * row_bytes) {
      for (int v = 0; v < kRowVecs; ++v) {
        const std::uint8_t* at = value + v / Shape::kRowVecs * kValueGroup / 2 + v % Shape::kRowVecs * Simd::kLanes;
        typename Simd::Codes codes[2];
        Simd::load_code_pairs(at, at + row_bytes, &codes[0], &codes[1]);
        for (int q = 0; q < kCount; ++q) {
          const typename Simd::Weights w =
              Simd::load_weights(pair + (v / Shape::kRowVecs * kQueryTile + q) * kPartition);
          for (int h = 0; h < Shape::kHalves; ++h)
            acc[q][v][h] = Simd::add_pairs(acc[q][v][h], codes[Shape::kHalves == 2 ? h : half], w);
        }
      }
    }
  }
  for (int q = 0; q < kCount; ++q) {
    for (int v = 0; v < kRowVecs; ++v) {
      for (int h = 0; h < Shape::kHalves; ++h)
        Simd::store_ints(weighted + q * kv.padded_dim + column(v, h), acc[q][v][h]);
    }
  }
}

template <int kCount, int kGroups>
void weigh_int4_groups(const KvHeadView& kv, const Places& places, const KnownTokens& known, std::int64_t begin,
                       std::int64_t end, const float* scores, const Int4Weights& of_tile, std::int64_t group,
                       float* weighted) {
  using F = typename Simd::F;
  using Shape = Int4ValueShape<kCount>;
  alignas(64) std::int16_t weights[kGroups * kQueryTile * kPartition];
  for (int g = 0; g < kGroups; ++g) {
    F factor[kCount];
    for (int q = 0; q < kCount; ++q) {
      const float largest = of_tile.largest[group + g][q];
      factor[q] = Simd::set1(largest > 1e-30f ? kMostWeight / largest : 0.0f);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const std::byte* values = kv.base + places.at[i].block + kv.value_offset;
      const std::uint16_t* scales = int4_scales(kv, values, kv.padded_dim, group + g, places.at[i].inside);
      const F scale = known.keep(Simd::load_f16(scales), i);
      for (int q = 0; q < kCount; ++q) {
        const F p = Simd::load(scores + q * kPartition + i * Simd::kLanes);
        Simd::store_i16(weights + (g * kQueryTile + q) * kPartition + i * Simd::kLanes,
                        Simd::mul(Simd::mul(p, scale), factor[q]));
      }
    }
  }
  for (int byte = 0; byte < kValueGroup / 2; byte += Shape::kRowVecs * Simd::kLanes) {
    for (int half = 0; half < 2; half += Shape::kHalves)
      weigh_int4_columns<kCount, kGroups>(kv, places, begin, end, weights, group, byte, half, weighted);
  }
}

template <int kCount>
void weigh_int4_values(const KvHeadView& kv, const Places& places, const KnownTokens& known, std::int64_t begin,
                       std::int64_t end, const float* scores, const Int4Weights& of_tile, float* weighted) {
  constexpr int kGroups = Int4ValueShape<kCount>::kGroups;
  const std::int64_t groups = kv.padded_dim / kValueGroup;
  std::int64_t group = 0;
  for (; group + kGroups <= groups; group += kGroups)
    weigh_int4_groups<kCount, kGroups>(kv, places, known, begin, end, scores, of_tile, group, weighted);
  for (; group < groups; ++group)
    weigh_int4_groups<kCount, 1>(kv, places, known, begin, end, scores, of_tile, group, weighted);
}

}  // namespace
}  // namespace quire
