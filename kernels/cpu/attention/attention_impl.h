// Attention of a tile of query vectors over one partition of a paged context, and the merging of partitions. Any
// thread. Included by an ISA level's file behind elementwise_impl.h; everything here has internal linkage. Invariant: a
// query's result depends on the partition's tokens that it may see; those beyond count as exact zeros.
#pragma once

#include "kernels/cpu/attention/attention_int4_impl.h"
#include "kernels/cpu/attention/attention_masked_impl.h"

namespace quire {
namespace {

// scores[q][token] = scale * (query . key) for kTokenVecs vectors of tokens; lanes beyond the context hold anything.
template <class E, int kCount, int kTokenVecs>
void score_keys(const KvHeadView& kv, const QueryTile& tile, const Place* places, float* scores) {
  using F = typename Simd::F;
  constexpr std::int64_t kUnroll = 8;  // divides every head size
  const std::byte* key[kTokenVecs];
  const std::byte* ahead[kTokenVecs];
  F acc[kTokenVecs][kCount];
  for (int v = 0; v < kTokenVecs; ++v) {
    const Place& place = places[v];
    key[v] = kv.base + place.block + place.inside * E::kBytes;
    ahead[v] = kv.base + place.ahead_of_key + (place.key_before_value ? kv.value_offset : 0) +
               place.inside * kv.head_dim * E::kBytes;
    for (int q = 0; q < kCount; ++q)
      acc[v][q] = Simd::zero();
  }
  const float* query = tile.queries;
  for (std::int64_t d = 0; d < kv.head_dim; d += kUnroll) {
    for (std::int64_t i = 0; i < kUnroll; ++i, query += kQueryTile) {
      F k[kTokenVecs];
      for (int v = 0; v < kTokenVecs; ++v) {
        k[v] = E::load(key[v]);
        key[v] += kv.block_size * E::kBytes;
      }
      for (int q = 0; q < kCount; ++q) {
        const F x = Simd::set1(query[q]);
        for (int v = 0; v < kTokenVecs; ++v)
          acc[v][q] = Simd::fma(k[v], x, acc[v][q]);
      }
    }
    for (int v = 0; v < kTokenVecs; ++v)
      fetch_ahead<kUnroll * Simd::kLanes * E::kBytes>(ahead[v] + d * Simd::kLanes * E::kBytes);
  }
  const F scale = Simd::set1(tile.scale * 1.44269504f);  // exponentials are to base 2
  for (int v = 0; v < kTokenVecs; ++v) {
    F factor = scale;
    if constexpr (E::kScaled) {
      const Place& place = places[v];
      factor = Simd::mul(scale, Simd::load(key_scales(kv, place)));
      __builtin_prefetch(kv.base + place.ahead_of_key + key_scale_offset(kv, place));
      __builtin_prefetch(value_scales(kv, place));
    }
    for (int q = 0; q < kCount; ++q)
      Simd::store(scores + q * kPartition + v * Simd::kLanes, Simd::mul(acc[v][q], factor));
  }
}

// Turns a query's scores of `num_vecs` vectors into 2^(score - maximum), zero for unseen tokens, and returns their sum.
// For int8 values the scale of a token is then folded into its probability.
template <class E>
float soften(const KvHeadView& kv, const Places& places, std::int64_t num_vecs, std::int64_t visible, float maximum,
             float* scores) {
  using F = typename Simd::F;
  const std::int64_t whole = visible / Simd::kLanes;
  const std::int64_t rest = visible % Simd::kLanes;
  const F shift = Simd::set1(maximum);
  F total = Simd::zero();
  const auto put = [&](std::int64_t i, F p) {
    total = Simd::add(total, p);
    if constexpr (E::kScaled) p = Simd::mul(p, Simd::load(value_scales(kv, places.at[i])));
    return p;
  };
  for (std::int64_t i = 0; i < whole; ++i) {
    float* at = scores + i * Simd::kLanes;
    Simd::store(at, put(i, exp2_vector(Simd::sub(Simd::load(at), shift))));
  }
  if (rest > 0) {
    float* at = scores + whole * Simd::kLanes;
    const F p = exp2_vector(Simd::keep_first(Simd::sub(Simd::load(at), shift), rest, 0.0f));
    Simd::store(at, Simd::keep_first(put(whole, Simd::keep_first(p, rest, 0.0f)), rest, 0.0f));
  }
  for (std::int64_t i = whole + (rest > 0); i < num_vecs; ++i)
    Simd::store(scores + i * Simd::kLanes, Simd::zero());
  return Simd::reduce_add(total);
}

// Finds all maxima first: a reduction across lanes takes long, but those of several queries overlap.
template <class E>
void soften_tile(const KvHeadView& kv, const Places& places, const QueryTile& tile, std::int64_t first_token,
                 float* scores, const SoftmaxState& out) {
  if (tile.mask != nullptr) return soften_masked_tile<E>(kv, places, tile, first_token, scores, out);
  std::int64_t visible[kQueryTile];
  for (std::int64_t q = 0; q < tile.count; ++q) {
    visible[q] = tokens_seen(tile, q, first_token, places);
    out.maximum[q] = largest_score(scores + q * kPartition, visible[q]);
  }
  for (std::int64_t q = 0; q < tile.count; ++q)
    out.sum[q] = soften<E>(kv, places, places.num_vecs, visible[q], out.maximum[q], scores + q * kPartition);
}

// weighted[q][d..] += probability * V over the vectors of tokens [begin, end), for kWidth vectors of columns; from zero
// where `begin` is.
template <class E, int kCount, int kWidth>
void weigh_columns(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end,
                   const float* scores, std::int64_t column, float* weighted) {
  using F = typename Simd::F;
  F acc[kCount][kWidth];
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w) {
      acc[q][w] = begin == 0 ? Simd::zero() : Simd::load(weighted + q * kv.padded_dim + column + w * Simd::kLanes);
    }
  }
  const std::int64_t row_bytes = kv.padded_dim * E::kBytes;
  for (std::int64_t i = begin; i < end; ++i) {
    const Place& place = places.at[i];
    const std::int64_t from = place.inside * row_bytes + column * E::kBytes;
    const std::byte* value = kv.base + place.block + kv.value_offset + from;
    const std::byte* ahead = kv.base + place.ahead_of_value + (place.value_before_key ? 0 : kv.value_offset) + from;
    const float* p = scores + i * Simd::kLanes;
    const std::int64_t left = places.num_tokens - i * Simd::kLanes;
    const float* stop = p + (left < Simd::kLanes ? left : Simd::kLanes);
    for (; p < stop; ++p, value += row_bytes, ahead += row_bytes) {
      F v[kWidth];
      for (int w = 0; w < kWidth; ++w)
        v[w] = E::load(value + w * Simd::kLanes * E::kBytes);
      for (int q = 0; q < kCount; ++q) {
        const F weight = Simd::set1(p[q * kPartition]);
        for (int w = 0; w < kWidth; ++w)
          acc[q][w] = Simd::fma(weight, v[w], acc[q][w]);
      }
      fetch_ahead<kWidth * Simd::kLanes * E::kBytes>(ahead);
    }
  }
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w)
      Simd::store(weighted + q * kv.padded_dim + column + w * Simd::kLanes, acc[q][w]);
  }
}

template <class E, int kCount, int kTokenVecs>
[[gnu::always_inline]] inline void score(const KvHeadView& kv, const QueryTile& tile, const Place* places,
                                         float* scores) {
  if constexpr (E::kGrouped) {
    score_int4_keys<kCount, kTokenVecs>(kv, tile, places, scores);
  } else {
    score_keys<E, kCount, kTokenVecs>(kv, tile, places, scores);
  }
}

template <class E, int kCount>
void weigh_values(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end, const float* scores,
                  float* weighted) {
  constexpr int kWide = kCount == 8 ? Simd::kValueVecs : 2 * Simd::kValueVecs;
  std::int64_t column = 0;
  for (; column + kWide * Simd::kLanes <= kv.padded_dim; column += kWide * Simd::kLanes)
    weigh_columns<E, kCount, kWide>(kv, places, begin, end, scores, column, weighted);
  for (; column < kv.padded_dim; column += Simd::kLanes)
    weigh_columns<E, kCount, 1>(kv, places, begin, end, scores, column, weighted);
}

// The products with V of the heads of attend_tiles.
template <class E, int kCount>
void weigh_heads(const KvHeadView* kv, const Places& places, const QueryTile* tiles, std::int64_t num_heads,
                 [[maybe_unused]] std::int64_t first_token, const float* scores, const SoftmaxState* out) {
  constexpr std::int64_t kHeadScores = kQueryTile * kPartition;
  const std::int64_t step = num_heads > 1 ? kStepVecs : places.num_vecs;
  if constexpr (E::kGrouped) {
    const KnownTokens known = known_tokens(tiles[0], places, first_token);
    Int4Weights weights[kHeadsTogether];
    for (std::int64_t h = 0; h < num_heads; ++h)
      begin_int4_sums<kCount>(kv[h], places, known, scores + h * kHeadScores, &weights[h], out[h].weighted);
    const std::int64_t int4_step = 4 * step;  // four times the distance: int4 takes a fourth of f16's bytes
    for (std::int64_t i = 0; i < places.num_vecs; i += int4_step) {
      const std::int64_t end = i + int4_step < places.num_vecs ? i + int4_step : places.num_vecs;
      for (std::int64_t h = 0; h < num_heads; ++h)
        weigh_int4_values<kCount>(kv[h], places, known, i, end, scores + h * kHeadScores, weights[h], out[h].weighted);
    }
    for (std::int64_t h = 0; h < num_heads; ++h)
      end_int4_sums<kCount>(kv[h], weights[h], out[h].weighted);
  } else if (kv[0].value_in_key) {
    for (std::int64_t h = 0; h < num_heads; ++h)
      weigh_keys<E, kCount>(kv[h], places, scores + h * kHeadScores, out[h].weighted);
  } else {
    for (std::int64_t i = 0; i < places.num_vecs; i += step) {
      const std::int64_t end = i + step < places.num_vecs ? i + step : places.num_vecs;
      for (std::int64_t h = 0; h < num_heads; ++h)
        weigh_values<E, kCount>(kv[h], places, i, end, scores + h * kHeadScores, out[h].weighted);
    }
  }
}

// The arithmetic of each head is the same for any number of heads; several heads are interleaved, so that memory is
// read roughly in order.
template <class E, int kCount>
void attend_tiles(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                  std::int64_t partition, float* scores, const SoftmaxState* out) {
  constexpr std::int64_t kHeadScores = kQueryTile * kPartition;
  constexpr int kTokenVecs = kCount == 8 ? Simd::kScoreVecs : 2 * Simd::kScoreVecs;
  const QueryTile& first = tiles[0];
  const std::int64_t begin = first_token_of(first, partition);
  Places places;
  find_places(kv[0], table, begin, first.visible[first.count - 1], &places);
  const std::int64_t num_vecs = places.num_vecs;
  std::int64_t i = 0;
  for (; i + kTokenVecs <= num_vecs; i += kTokenVecs) {
    for (std::int64_t h = 0; h < num_heads; ++h)
      score<E, kCount, kTokenVecs>(kv[h], tiles[h], places.at + i, scores + h * kHeadScores + i * Simd::kLanes);
  }
  for (; i < num_vecs; ++i) {
    for (std::int64_t h = 0; h < num_heads; ++h)
      score<E, kCount, 1>(kv[h], tiles[h], places.at + i, scores + h * kHeadScores + i * Simd::kLanes);
  }
  for (std::int64_t h = 0; h < num_heads; ++h)
    soften_tile<E>(kv[h], places, tiles[h], begin, scores + h * kHeadScores, out[h]);
  weigh_heads<E, kCount>(kv, places, tiles, num_heads, begin, scores, out);
}

template <class E>
void attend_element(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                    std::int64_t partition, float* scores, const SoftmaxState* out) {
  const std::int64_t count = tiles[0].count;
  if (count > 4) return attend_tiles<E, 8>(kv, table, tiles, num_heads, partition, scores, out);
  if (count > 2) return attend_tiles<E, 4>(kv, table, tiles, num_heads, partition, scores, out);
  if (count > 1) return attend_tiles<E, 2>(kv, table, tiles, num_heads, partition, scores, out);
  attend_tiles<E, 1>(kv, table, tiles, num_heads, partition, scores, out);
}

std::int64_t attend_scratch(std::int64_t /*head_dim*/) {
  return kHeadsTogether * kQueryTile * kPartition;
}

// [head_dim][kQueryTile], padded to padded_tile_rows(count) by finite values.
void pack_queries(const float* const* rows, std::int64_t count, std::int64_t head_dim, float /*scale*/, float* out) {
  for (std::int64_t i = 0; i < padded_tile_rows(count); ++i) {
    const float* from = rows[i < count ? i : 0];
    for (std::int64_t d = 0; d < head_dim; ++d)
      out[d * kQueryTile + i] = from[d];
  }
}

// scores: [num_heads][kQueryTile][kPartition]. One tile of each head at a time.
void attend(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
            std::int64_t /*num_tiles*/, std::int64_t partition, float* scores, const SoftmaxState* out) {
  switch (kv[0].element) {
    case KvElement::kF32: return attend_element<KvF32>(kv, table, tiles, num_heads, partition, scores, out);
    case KvElement::kF16: return attend_element<KvF16>(kv, table, tiles, num_heads, partition, scores, out);
    case KvElement::kBF16: return attend_element<KvBF16>(kv, table, tiles, num_heads, partition, scores, out);
    case KvElement::kI8: return attend_element<KvI8>(kv, table, tiles, num_heads, partition, scores, out);
    case KvElement::kI4: return attend_element<KvI4>(kv, table, tiles, num_heads, partition, scores, out);
  }
}

constexpr AttendKernel attend_kernel() {
  return {.query_tile = kQueryTile,
          .tiles_together = 1,
          .scratch = attend_scratch,
          .pack_queries = pack_queries,
          .pack_int4_queries = pack_int4_queries,
          .run = attend};
}

inline void merge(const SoftmaxState& state, const SoftmaxState& part, std::int64_t count, std::int64_t padded_dim) {
  using F = typename Simd::F;
  float top[Simd::kLanes];
  float keep[Simd::kLanes];
  float add[Simd::kLanes];
  for (std::int64_t q = 0; q < count; ++q) {
    const std::int64_t lane = q % kQueryTile;
    if (lane == 0) {
      const F before = Simd::load_partial(state.maximum + q, kQueryTile);
      const F now = Simd::load_partial(part.maximum + q, kQueryTile);
      const F larger = Simd::max(before, now);
      Simd::store(top, larger);
      Simd::store(keep, exp2_vector(Simd::sub(before, larger)));
      Simd::store(add, exp2_vector(Simd::sub(now, larger)));
    }
    if (part.sum[q] == 0.0f) continue;
    state.maximum[q] = top[lane];
    state.sum[q] = state.sum[q] * keep[lane] + part.sum[q] * add[lane];
    float* into = state.weighted + q * padded_dim;
    const float* from = part.weighted + q * padded_dim;
    for (std::int64_t d = 0; d < padded_dim; d += Simd::kLanes) {
      const F kept = Simd::mul(Simd::load(into + d), Simd::set1(keep[lane]));
      Simd::store(into + d, Simd::fma(Simd::load(from + d), Simd::set1(add[lane]), kept));
    }
  }
}

inline void finish(const float* weighted, float sum, std::int64_t head_dim, float* out) {
  const typename Simd::F factor = Simd::set1(1.0f / sum);
  for (std::int64_t d = 0; d < head_dim; d += Simd::kLanes) {
    Simd::store_partial(out + d, Simd::mul(Simd::load(weighted + d), factor), head_dim - d);
  }
}

}  // namespace
}  // namespace quire
