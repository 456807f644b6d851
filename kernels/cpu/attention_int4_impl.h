// Attention over an int4 cache: values are minimum + scale * code, with a scale and a minimum for each group of
// features of a token and head. Any thread. Included by an ISA level's file; internal linkage.
// Invariant: sums go over features, and over tokens, in order, whatever other queries or heads are worked on.
#pragma once

#include "kernels/cpu/attention_masked_impl.h"

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

// acc += queries times the codes of `count` features, whose bytes are `row_bytes` apart.
template <int kCount, int kTokenVecs>
[[gnu::always_inline]] inline void multiply_int4_keys(const float* query, std::int64_t count,
                                                      const std::uint8_t* const* keys, std::int64_t row_bytes,
                                                      typename Simd::F (*acc)[kCount]) {
  using F = typename Simd::F;
  const std::uint8_t* key[kTokenVecs];
  for (int v = 0; v < kTokenVecs; ++v)
    key[v] = keys[v];
  for (const float* end = query + count * kQueryTile; query < end;) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair, query += 2 * kQueryTile) {
      F even[kTokenVecs];
      F odd[kTokenVecs];
      for (int v = 0; v < kTokenVecs; ++v) {
        even[v] = Simd::load_low_nibbles(key[v]);
        odd[v] = Simd::load_high_nibbles(key[v]);
        key[v] += row_bytes;
      }
      for (int q = 0; q < kCount; ++q) {
        const F x = Simd::set1(query[q]);
        for (int v = 0; v < kTokenVecs; ++v)
          acc[v][q] = Simd::fma(even[v], x, acc[v][q]);
      }
      for (int q = 0; q < kCount; ++q) {
        const F x = Simd::set1(query[kQueryTile + q]);
        for (int v = 0; v < kTokenVecs; ++v)
          acc[v][q] = Simd::fma(odd[v], x, acc[v][q]);
      }
    }
  }
}

// Queries are followed by the sums of their elements, group by group: what a minimum of one is worth.
template <int kCount, int kTokenVecs>
void score_int4_keys(const KvHeadView& kv, const QueryTile& tile, const Place* places, float* scores) {
  using F = typename Simd::F;
  const std::int64_t minima = groups_of(kv.head_dim, kKeyGroup) * kv.block_size;
  const float* query = tile.queries;
  const float* sums = tile.queries + kv.head_dim * kQueryTile;
  F total[kTokenVecs][kCount];
  for (int v = 0; v < kTokenVecs; ++v) {
    for (int q = 0; q < kCount; ++q)
      total[v][q] = Simd::zero();
  }
  for (std::int64_t begin = 0; begin < kv.head_dim; begin += kKeyGroup, sums += kQueryTile) {
    const std::uint8_t* key[kTokenVecs];
    F acc[kTokenVecs][kCount];
    for (int v = 0; v < kTokenVecs; ++v) {
      const std::byte* row = kv.base + places[v].block + begin / 2 * kv.block_size + places[v].inside;
      key[v] = reinterpret_cast<const std::uint8_t*>(row);
      for (int q = 0; q < kCount; ++q)
        acc[v][q] = Simd::zero();
    }
    const std::int64_t left = kv.head_dim - begin;
    const std::int64_t count = left < kKeyGroup ? left : kKeyGroup;
    multiply_int4_keys<kCount, kTokenVecs>(query, count, key, kv.block_size, acc);
    query += count * kQueryTile;
    for (int v = 0; v < kTokenVecs; ++v) {
      const Place& place = places[v];
      const std::byte* ahead = kv.base + place.ahead_of_key + (place.key_before_value ? kv.value_offset : 0);
      fetch_ahead<kKeyGroup * Simd::kLanes / 2>(ahead + (place.inside * kv.head_dim + begin * Simd::kLanes) / 2);
      __builtin_prefetch(int4_scales(kv, ahead, kv.head_dim, begin / kKeyGroup * 2, place.inside));
      const std::uint16_t* scales =
          int4_scales(kv, kv.base + place.block, kv.head_dim, begin / kKeyGroup, place.inside);
      const F scale = Simd::load_f16(scales);
      const F minimum = Simd::load_f16(scales + minima);
      for (int q = 0; q < kCount; ++q) {
        total[v][q] = Simd::fma(acc[v][q], scale, total[v][q]);
        total[v][q] = Simd::fma(Simd::set1(sums[q]), minimum, total[v][q]);
      }
    }
  }
  const F factor = Simd::set1(tile.scale * 1.44269504f);  // to base 2
  for (int v = 0; v < kTokenVecs; ++v) {
    for (int q = 0; q < kCount; ++q)
      Simd::store(scores + q * kPartition + v * Simd::kLanes, Simd::mul(total[v][q], factor));
  }
}

// Which lanes of a vector of a partition hold tokens of the context; others may lie in memory never written.
struct KnownTokens {
  std::int64_t first;  // from the first vector's first token
  std::int64_t end;

  [[gnu::always_inline]] typename Simd::F keep(typename Simd::F x, std::int64_t vec) const {
    return keep_lanes(x, first - vec * Simd::kLanes, end - vec * Simd::kLanes);
  }
};

inline KnownTokens known_tokens(const QueryTile& tile, const Places& places, std::int64_t first_token) {
  const std::int64_t hidden = tile.mask == nullptr ? 0 : tile.mask->first[0] - first_token;
  return {hidden, places.num_tokens};
}

// Sums over V begin with what the minima add to them: of each group the probabilities times the tokens' minima.
template <int kCount>
void begin_int4_sums(const KvHeadView& kv, const Places& places, const KnownTokens& known, const float* scores,
                     float* weighted) {
  using F = typename Simd::F;
  const std::int64_t groups = kv.padded_dim / kValueGroup;
  for (std::int64_t group = 0; group < groups; ++group) {
    F total[kCount];
    for (int q = 0; q < kCount; ++q)
      total[q] = Simd::zero();
    for (std::int64_t i = 0; i < places.num_vecs; ++i) {
      const std::byte* values = kv.base + places.at[i].block + kv.value_offset;
      const std::uint16_t* minima = int4_scales(kv, values, kv.padded_dim, groups + group, places.at[i].inside);
      const F minimum = known.keep(Simd::load_f16(minima), i);
      for (int q = 0; q < kCount; ++q)
        total[q] = Simd::fma(Simd::load(scores + q * kPartition + i * Simd::kLanes), minimum, total[q]);
    }
    for (int q = 0; q < kCount; ++q) {
      const F sum = Simd::set1(Simd::reduce_add(total[q]));
      for (std::int64_t d = 0; d < kValueGroup; d += Simd::kLanes)
        Simd::store(weighted + q * kv.padded_dim + group * kValueGroup + d, sum);
    }
  }
}

// weighted[q][..] += probability times scale, times codes, over the vectors of tokens [begin, end), for the columns of
// kRowVecs vectors of bytes of one group.
template <int kCount, int kRowVecs, bool kLow, bool kHigh>
void weigh_int4_columns(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end,
                        const float* scaled, std::int64_t group, std::int64_t byte, float* weighted) {
  using F = typename Simd::F;
  constexpr int kHalves = kLow && kHigh ? 2 : 1;
  const auto sums = [&](int q, int v, int half) {
    const std::int64_t column = group * kValueGroup + byte + v * Simd::kLanes + (kLow ? half : 1) * kValueGroup / 2;
    return weighted + q * kv.padded_dim + column;
  };
  F acc[kCount][kRowVecs][kHalves];
  for (int q = 0; q < kCount; ++q) {
    for (int v = 0; v < kRowVecs; ++v) {
      for (int half = 0; half < kHalves; ++half)
        acc[q][v][half] = Simd::load(sums(q, v, half));
    }
  }
  const std::int64_t row_bytes = kv.padded_dim / 2;
  const bool fetches = group == 0 && byte == 0 && kLow;
  for (std::int64_t i = begin; i < end; ++i) {
    const Place& place = places.at[i];
    const std::byte* row = kv.base + place.block + kv.value_offset + place.inside * row_bytes;
    if (fetches) {
      const std::byte* ahead = kv.base + place.ahead_of_value + (place.value_before_key ? 0 : kv.value_offset);
      for (std::int64_t at = 0; at < Simd::kLanes * row_bytes; at += 64)
        __builtin_prefetch(ahead + place.inside * row_bytes + at);
    }
    const auto* value = reinterpret_cast<const std::uint8_t*>(row) + group * kValueGroup / 2 + byte;
    const float* p = scaled + i * Simd::kLanes;
    const std::int64_t left = places.num_tokens - i * Simd::kLanes;
    const float* stop = p + (left < Simd::kLanes ? left : Simd::kLanes);
    for (; p < stop; ++p, value += row_bytes) {
      F codes[kRowVecs][kHalves];
      for (int v = 0; v < kRowVecs; ++v) {
        if constexpr (kLow) codes[v][0] = Simd::load_low_nibbles(value + v * Simd::kLanes);
        if constexpr (kHigh) codes[v][kHalves - 1] = Simd::load_high_nibbles(value + v * Simd::kLanes);
      }
      for (int q = 0; q < kCount; ++q) {
        const F weight = Simd::set1(p[q * kPartition]);
        for (int v = 0; v < kRowVecs; ++v) {
          for (int half = 0; half < kHalves; ++half)
            acc[q][v][half] = Simd::fma(weight, codes[v][half], acc[q][v][half]);
        }
      }
    }
  }
  for (int q = 0; q < kCount; ++q) {
    for (int v = 0; v < kRowVecs; ++v) {
      for (int half = 0; half < kHalves; ++half)
        Simd::store(sums(q, v, half), acc[q][v][half]);
    }
  }
}

template <int kCount>
void weigh_int4_values(const KvHeadView& kv, const Places& places, const KnownTokens& known, std::int64_t begin,
                       std::int64_t end, const float* scores, float* weighted) {
  constexpr int kByteVecs = kValueGroup / 2 / Simd::kLanes;  // of a group
  constexpr int kRowVecs = kCount <= 2 ? kByteVecs : 1;
  alignas(64) float scaled[kQueryTile * kPartition];
  for (std::int64_t group = 0; group < kv.padded_dim / kValueGroup; ++group) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::byte* values = kv.base + places.at[i].block + kv.value_offset;
      const std::uint16_t* scales = int4_scales(kv, values, kv.padded_dim, group, places.at[i].inside);
      const typename Simd::F scale = known.keep(Simd::load_f16(scales), i);
      for (int q = 0; q < kCount; ++q) {
        const std::int64_t at = q * kPartition + i * Simd::kLanes;
        Simd::store(scaled + at, Simd::mul(Simd::load(scores + at), scale));
      }
    }
    for (int byte = 0; byte < kValueGroup / 2; byte += kRowVecs * Simd::kLanes) {
      if constexpr (kCount < 8 || Simd::kValueVecs > 1) {
        weigh_int4_columns<kCount, kRowVecs, true, true>(kv, places, begin, end, scaled, group, byte, weighted);
      } else {
        weigh_int4_columns<kCount, kRowVecs, true, false>(kv, places, begin, end, scaled, group, byte, weighted);
        weigh_int4_columns<kCount, kRowVecs, false, true>(kv, places, begin, end, scaled, group, byte, weighted);
      }
    }
  }
}

}  // namespace
}  // namespace quire
