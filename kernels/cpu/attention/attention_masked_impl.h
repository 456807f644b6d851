// Additions of the masked kernel to attention: windows, caps, biases by distance, values inside keys. Any thread.
// Included by an ISA level's file; internal linkage. Invariant: the order of a query's sums depends on the query alone;
// tokens that it does not see reach no result.
#pragma once

#include "kernels/cpu/attention/attention_places_impl.h"
#include "kernels/cpu/rows/activation_impl.h"

namespace quire {
namespace {

// Zeros but for lanes [from, to).
[[gnu::always_inline]] inline typename Simd::F keep_lanes(typename Simd::F x, std::int64_t from, std::int64_t to) {
  if (from <= 0 && to >= Simd::kLanes) return x;
  float lanes[Simd::kLanes];
  Simd::store(lanes, x);
  for (std::int64_t i = 0; i < Simd::kLanes; ++i) {
    if (i < from || i >= to) lanes[i] = 0.0f;
  }
  return Simd::load(lanes);
}

// Masks the scores of a query that sees tokens [from, to): capped, moved by distance, and minus infinity for unseen
// tokens in the vectors at the range's ends.
inline void mask_scores(const TileMask& mask, std::int64_t query, std::int64_t first_token, std::int64_t from,
                        std::int64_t to, float* scores) {
  using F = typename Simd::F;
  constexpr float kLog2E = 1.44269504f;
  const std::int64_t begin = from / Simd::kLanes * Simd::kLanes;
  const std::int64_t end = (to + Simd::kLanes - 1) / Simd::kLanes * Simd::kLanes;
  if (mask.softcap > 0.0f) {
    const F cap = Simd::set1(mask.softcap * kLog2E);
    for (std::int64_t i = begin; i < end; i += Simd::kLanes)
      Simd::store(scores + i, Simd::mul(tanh_vector(Simd::div(Simd::load(scores + i), cap)), cap));
  }
  if (mask.slope[query] != 0.0f) {
    const float slope = mask.slope[query] * kLog2E;
    const std::int64_t position = mask.position[query] - first_token;
    for (std::int64_t i = begin; i < end; ++i)
      scores[i] -= slope * static_cast<float>(i < position ? position - i : i - position);
  }
  for (std::int64_t i = begin; i < from; ++i)
    scores[i] = -__builtin_inff();
  for (std::int64_t i = to; i < end; ++i)
    scores[i] = -__builtin_inff();
}

// soften for a query that sees tokens [from, to).
template <class E>
float soften_range(const KvHeadView& kv, const Places& places, std::int64_t from, std::int64_t to, float maximum,
                   float* scores) {
  using F = typename Simd::F;
  const F shift = Simd::set1(maximum);
  F total = Simd::zero();
  for (std::int64_t i = 0; i < places.num_vecs; ++i) {
    float* at = scores + i * Simd::kLanes;
    const std::int64_t first = from - i * Simd::kLanes;
    const std::int64_t last = to - i * Simd::kLanes;
    if (first >= Simd::kLanes || last <= 0) {
      Simd::store(at, Simd::zero());
      continue;
    }
    F p = keep_lanes(exp2_vector(Simd::sub(Simd::load(at), shift)), first, last);
    total = Simd::add(total, p);
    if constexpr (E::kScaled) {
      const float* scales = kv.value_in_key ? key_scales(kv, places.at[i]) : value_scales(kv, places.at[i]);
      p = keep_lanes(Simd::mul(p, Simd::load(scales)), first, last);
    }
    Simd::store(at, p);
  }
  return Simd::reduce_add(total);
}

template <class E>
void soften_masked_tile(const KvHeadView& kv, const Places& places, const QueryTile& tile, std::int64_t first_token,
                        float* scores, const SoftmaxState& out) {
  for (std::int64_t q = 0; q < tile.count; ++q) {
    float* own = scores + q * kPartition;
    const std::int64_t hidden = tile.mask->first[q] - first_token;
    const std::int64_t to = tokens_seen(tile, q, first_token, places);
    const std::int64_t from = hidden < 0 ? 0 : hidden > to ? to : hidden;
    const std::int64_t begin = from / Simd::kLanes * Simd::kLanes;
    mask_scores(*tile.mask, q, first_token, from, to, own);
    out.maximum[q] = from < to ? largest_score(own + begin, to - begin) : -__builtin_inff();
    out.sum[q] = soften_range<E>(kv, places, from, to, out.maximum[q], own);
  }
}

// Weighs V if it is the first elements of K: a sum over tokens, which lie side by side, for kWidth elements.
template <class E, int kCount, int kWidth>
void weigh_key_rows(const KvHeadView& kv, const Places& places, const float* scores, std::int64_t row,
                    float* weighted) {
  using F = typename Simd::F;
  F acc[kCount][kWidth];
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w)
      acc[q][w] = Simd::zero();
  }
  const std::int64_t row_bytes = kv.block_size * E::kBytes;
  for (std::int64_t i = 0; i < places.num_vecs; ++i) {
    const Place& place = places.at[i];
    const std::byte* key = kv.base + place.block + place.inside * E::kBytes + row * row_bytes;
    const std::int64_t left = places.num_tokens - i * Simd::kLanes;
    F v[kWidth];
    for (int w = 0; w < kWidth; ++w) {
      v[w] = E::load(key + w * row_bytes);
      if (left < Simd::kLanes) v[w] = Simd::keep_first(v[w], left, 0.0f);
    }
    for (int q = 0; q < kCount; ++q) {
      const F p = Simd::load(scores + q * kPartition + i * Simd::kLanes);
      for (int w = 0; w < kWidth; ++w)
        acc[q][w] = Simd::fma(p, v[w], acc[q][w]);
    }
  }
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w)
      weighted[q * kv.padded_dim + row + w] = Simd::reduce_add(acc[q][w]);
  }
}

template <class E, int kCount>
void weigh_keys(const KvHeadView& kv, const Places& places, const float* scores, float* weighted) {
  constexpr int kWidth = kCount == 8 ? Simd::kValueVecs : 2 * Simd::kValueVecs;
  static_assert(8 % kWidth == 0, "divides every head size");
  const std::int64_t rows = kv.padded_dim < kv.head_dim ? kv.padded_dim : kv.head_dim;
  for (std::int64_t row = 0; row < rows; row += kWidth)
    weigh_key_rows<E, kCount, kWidth>(kv, places, scores, row, weighted);
  for (int q = 0; q < kCount; ++q) {
    for (std::int64_t row = rows; row < kv.padded_dim; ++row)
      weighted[q * kv.padded_dim + row] = 0.0f;
  }
}

}  // namespace
}  // namespace quire
