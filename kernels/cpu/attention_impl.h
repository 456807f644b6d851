// Attention of a tile of query vectors over one partition of a paged context, and the merging of partitions. Any
// thread. Included by an ISA level's file behind elementwise_impl.h; everything here has internal linkage. Invariant: a
// query's result depends on the partition's tokens that it may see; those beyond count as exact zeros.
#pragma once

#include "kernels/cpu/elementwise_impl.h"

namespace quire {
namespace {

struct KvF32 {
  static constexpr std::int64_t kBytes = 4;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load(reinterpret_cast<const float*>(p));
  }
};
struct KvF16 {
  static constexpr std::int64_t kBytes = 2;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p));
  }
};
struct KvBF16 {
  static constexpr std::int64_t kBytes = 2;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load_bf16(reinterpret_cast<const std::uint16_t*>(p));
  }
};
struct KvI8 {
  static constexpr std::int64_t kBytes = 1;
  static constexpr bool kScaled = true;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load_i8(reinterpret_cast<const std::int8_t*>(p));
  }
};

// 2^x for x <= 0: 2^n times a minimax polynomial of the remainder in [-1/2, 1/2]. Relative error below 2e-7, exact at
// 0; what lies below 2^-126 counts as 2^-126.
[[gnu::always_inline]] inline typename Simd::F exp2_vector(typename Simd::F x) {
  using F = typename Simd::F;
  const F bounded = Simd::max(x, Simd::set1(-126.0f));
  const F n = Simd::round(bounded);
  const F r = Simd::sub(bounded, n);
  F p = Simd::set1(1.326472731e-3f);
  p = Simd::fma(p, r, Simd::set1(9.671512991e-3f));
  p = Simd::fma(p, r, Simd::set1(5.550733581e-2f));
  p = Simd::fma(p, r, Simd::set1(2.402224243e-1f));
  p = Simd::fma(p, r, Simd::set1(6.931470037e-1f));
  p = Simd::fma(p, r, Simd::set1(1.0f));
  return Simd::scale_pow2(p, n);
}

constexpr std::int64_t kPartitionVecs = kPartition / Simd::kLanes;
// Vectors of tokens of a head that are worked on before the next head's turn.
constexpr std::int64_t kStepVecs = 2 * Simd::kScoreVecs;

// Where a vector of tokens of the context lies, and what to bring near while it is read: bytes from a head's base.
struct Place {
  std::int64_t block;
  std::int64_t inside;  // tokens
  std::int64_t ahead_of_key;
  std::int64_t ahead_of_value;
  bool key_before_value;  // ahead_of_key is a block whose V is wanted
  bool value_before_key;  // ahead_of_value is a block whose K is wanted
};

// The tokens of a partition that some query sees, as vectors.
struct Places {
  Place at[kPartitionVecs];
  std::int64_t num_tokens;
  std::int64_t num_vecs;
};

// Reads go through the keys of the partition, then through its values, then to the next partition; what is
// `kStepVecs` vectors ahead of them is fetched, by whole blocks.
inline void find_places(const KvHeadView& kv, const std::int32_t* table, std::int64_t partition, std::int64_t visible,
                        Places* out) {
  const std::int64_t begin = partition * kPartition;
  const std::int64_t end = visible < begin + kPartition ? visible : begin + kPartition;
  const std::int64_t step = kStepVecs * Simd::kLanes > kv.block_size ? kStepVecs * Simd::kLanes / kv.block_size : 1;
  const std::int64_t first = begin / kv.block_size;
  const std::int64_t last = (end - 1) / kv.block_size;
  const std::int64_t context_last = (visible - 1) / kv.block_size;
  const auto offset = [&](std::int64_t index) { return table[index] * static_cast<std::int64_t>(kv.block_stride); };
  out->num_tokens = end - begin;
  out->num_vecs = (end - begin + Simd::kLanes - 1) / Simd::kLanes;
  std::int64_t index = first;
  std::int64_t inside = begin - first * kv.block_size;
  for (std::int64_t i = 0; i < out->num_vecs; ++i) {
    Place& place = out->at[i];
    const std::int64_t next = index + step;
    const std::int64_t beyond = next > last ? first + (next - last - 1) : next;
    place.block = offset(index);
    place.inside = inside;
    place.key_before_value = next > last;
    place.ahead_of_key = offset(beyond < last ? beyond : last);
    place.value_before_key = next > last && next <= context_last;
    place.ahead_of_value = offset(next <= context_last ? next : index);
    inside += Simd::kLanes;
    if (inside == kv.block_size) {
      inside = 0;
      ++index;
    }
  }
}

// Bytes from a block's keys to the f32 scales of a vector's int8 keys.
inline std::int64_t key_scale_offset(const KvHeadView& kv, const Place& place) {
  return kv.head_dim * kv.block_size + place.inside * std::int64_t{4};
}

inline const float* key_scales(const KvHeadView& kv, const Place& place) {
  return reinterpret_cast<const float*>(kv.base + place.block + key_scale_offset(kv, place));
}

// The f32 scales of a vector's int8 values.
inline const float* value_scales(const KvHeadView& kv, const Place& place) {
  const std::byte* value = kv.base + place.block + kv.value_offset;
  return reinterpret_cast<const float*>(value + kv.block_size * kv.padded_dim) + place.inside;
}

// Asks for `bytes` from `p` on, a whole number of cache lines.
template <std::int64_t kAskedBytes>
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* p) {
  for (std::int64_t i = 0; i < kAskedBytes; i += 64)
    __builtin_prefetch(p + i);
}

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
  const F scale = Simd::set1(tile.scale * 1.44269504f);  // to base 2
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

// The largest of a query's scores, minus infinity where it sees nothing.
[[gnu::always_inline]] inline float largest_score(const float* scores, std::int64_t visible) {
  using F = typename Simd::F;
  const std::int64_t whole = visible / Simd::kLanes;
  const std::int64_t rest = visible % Simd::kLanes;
  F largest = Simd::set1(-__builtin_inff());
  for (std::int64_t i = 0; i < whole; ++i)
    largest = Simd::max(largest, Simd::load(scores + i * Simd::kLanes));
  if (rest > 0) {
    const F last = Simd::load(scores + whole * Simd::kLanes);
    largest = Simd::max(largest, Simd::keep_first(last, rest, -__builtin_inff()));
  }
  return Simd::reduce_max(largest);
}

// Turns a query's scores of `num_vecs` vectors into 2^(score - maximum), zero where it may not see, and gives their
// sum. For int8 values the scale of a token is then folded into its probability.
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

// Tokens that a query sees of those from `first_token` on.
inline std::int64_t tokens_seen(const QueryTile& tile, std::int64_t query, std::int64_t first_token,
                                const Places& places) {
  const std::int64_t seen = tile.visible[query] - first_token;
  return seen < 0 ? 0 : seen > places.num_tokens ? places.num_tokens : seen;
}

// All maxima first: a reduction across lanes takes long, but those of several queries overlap.
template <class E>
void soften_tile(const KvHeadView& kv, const Places& places, const QueryTile& tile, std::int64_t first_token,
                 float* scores, const SoftmaxState& out) {
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

// Whatever the number of heads, the arithmetic of each is the same; with several, they take turns, so that memory is
// read in about the order in which it lies.
template <class E, int kCount>
void attend_tiles(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                  std::int64_t partition, float* scores, const SoftmaxState* out) {
  constexpr std::int64_t kHeadScores = kQueryTile * kPartition;
  constexpr int kTokenVecs = kCount == 8 ? Simd::kScoreVecs : 2 * Simd::kScoreVecs;
  const QueryTile& first = tiles[0];
  Places places;
  find_places(kv[0], table, partition, first.visible[first.count - 1], &places);
  const std::int64_t num_vecs = places.num_vecs;
  std::int64_t i = 0;
  for (; i + kTokenVecs <= num_vecs; i += kTokenVecs) {
    for (std::int64_t h = 0; h < num_heads; ++h)
      score_keys<E, kCount, kTokenVecs>(kv[h], tiles[h], places.at + i, scores + h * kHeadScores + i * Simd::kLanes);
  }
  for (; i < num_vecs; ++i) {
    for (std::int64_t h = 0; h < num_heads; ++h)
      score_keys<E, kCount, 1>(kv[h], tiles[h], places.at + i, scores + h * kHeadScores + i * Simd::kLanes);
  }
  for (std::int64_t h = 0; h < num_heads; ++h)
    soften_tile<E>(kv[h], places, tiles[h], partition * kPartition, scores + h * kHeadScores, out[h]);
  const std::int64_t step = num_heads > 1 ? kStepVecs : num_vecs;
  for (i = 0; i < num_vecs; i += step) {
    const std::int64_t end = i + step < num_vecs ? i + step : num_vecs;
    for (std::int64_t h = 0; h < num_heads; ++h)
      weigh_values<E, kCount>(kv[h], places, i, end, scores + h * kHeadScores, out[h].weighted);
  }
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
  }
}

void merge(const SoftmaxState& state, const SoftmaxState& part, std::int64_t count, std::int64_t padded_dim) {
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

void finish(const float* weighted, float sum, std::int64_t head_dim, float* out) {
  const typename Simd::F factor = Simd::set1(1.0f / sum);
  for (std::int64_t d = 0; d < head_dim; d += Simd::kLanes) {
    Simd::store_partial(out + d, Simd::mul(Simd::load(weighted + d), factor), head_dim - d);
  }
}

// f32 to the cache's element type, kLanes at a time, through `put(index, element)`.
template <class Put>
void encode(KvElement element, const float* from, std::int64_t count, float inverse_scale, const Put& put) {
  for (std::int64_t i = 0; i < count; i += Simd::kLanes) {
    const std::int64_t n = count - i < Simd::kLanes ? count - i : Simd::kLanes;
    const typename Simd::F x = Simd::load_partial(from + i, n);
    alignas(64) std::uint16_t wide[Simd::kLanes];
    alignas(64) std::int8_t narrow[Simd::kLanes];
    if (element == KvElement::kF16) Simd::store_f16(wide, x);
    if (element == KvElement::kBF16) Simd::store_bf16(wide, x);
    if (element == KvElement::kI8) Simd::store_i8(narrow, Simd::mul(x, Simd::set1(inverse_scale)));
    for (std::int64_t j = 0; j < n; ++j) {
      if (element == KvElement::kF32) put(i + j, from + i + j, std::int64_t{4});
      if (element == KvElement::kF16 || element == KvElement::kBF16) put(i + j, wide + j, std::int64_t{2});
      if (element == KvElement::kI8) put(i + j, narrow + j, std::int64_t{1});
    }
  }
}

// The int8 scale of a vector; zero where all elements are (nearly) zero.
float int8_scale(const float* x, std::int64_t count) {
  typename Simd::F largest = Simd::zero();
  for (std::int64_t i = 0; i < count; i += Simd::kLanes) {
    largest = Simd::max(largest, Simd::abs(Simd::load_partial(x + i, count - i)));
  }
  const float bound = Simd::reduce_max(largest);
  return bound > 1e-30f ? bound / 127.0f : 0.0f;
}

// Encodes `vector` so that element i lands at base + i * step elements; the int8 scale at scales[offset].
void store_vector(const KvHeadView& kv, std::byte* base, std::int64_t step, std::byte* scales, std::int64_t offset,
                  const float* vector) {
  float inverse = 0.0f;
  if (kv.element == KvElement::kI8) {
    const float scale = int8_scale(vector, kv.head_dim);
    reinterpret_cast<float*>(scales)[offset] = scale;
    inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  }
  encode(kv.element, vector, kv.head_dim, inverse, [&](std::int64_t i, const void* element, std::int64_t size) {
    __builtin_memcpy(base + i * step * size, element, static_cast<std::size_t>(size));
  });
}

std::int64_t element_bytes(KvElement element) {
  return element == KvElement::kF32 ? 4 : element == KvElement::kI8 ? 1 : 2;
}

void store_key(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* key) {
  std::byte* base = kv.base + static_cast<std::size_t>(block) * kv.block_stride;
  std::byte* scales = base + kv.head_dim * kv.block_size;
  store_vector(kv, base + offset * element_bytes(kv.element), kv.block_size, scales, offset, key);
}

void store_value(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* value) {
  std::byte* base = kv.base + static_cast<std::size_t>(block) * kv.block_stride + kv.value_offset;
  std::byte* scales = base + kv.block_size * kv.padded_dim;
  store_vector(kv, base + offset * kv.padded_dim * element_bytes(kv.element), 1, scales, offset, value);
}

}  // namespace
}  // namespace quire
