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

// The tokens [begin, end) of the context that one call works on.
struct Span {
  std::int64_t begin;
  std::int64_t end;
};

[[gnu::always_inline]] inline const std::byte* key_block(const KvHeadView& kv, const std::int32_t* table,
                                                         std::int64_t token) {
  return kv.base + static_cast<std::size_t>(table[token / kv.block_size]) * kv.block_stride;
}

// scores[q][token - begin] = scale * (query . key); the span's last vector may hold tokens beyond its end.
template <class E, int kCount>
void score_keys(const KvHeadView& kv, const std::int32_t* table, const QueryTile& tile, Span span,
                const AttentionScratch& scratch) {
  using F = typename Simd::F;
  const F scale = Simd::set1(tile.scale);
  for (std::int64_t t = span.begin; t < span.end; t += Simd::kLanes) {
    const std::int64_t inside = t % kv.block_size;
    const std::byte* block = key_block(kv, table, t);
    const std::byte* key = block + inside * E::kBytes;
    F acc[Simd::kScoreChains][kCount];
    for (int c = 0; c < Simd::kScoreChains; ++c) {
      for (int q = 0; q < kCount; ++q)
        acc[c][q] = Simd::zero();
    }
    for (std::int64_t d = 0; d < kv.head_dim; d += Simd::kScoreChains) {
      for (int c = 0; c < Simd::kScoreChains; ++c) {
        const F k = E::load(key + (d + c) * kv.block_size * E::kBytes);
        for (int q = 0; q < kCount; ++q)
          acc[c][q] = Simd::fma(k, Simd::set1(scratch.queries[(d + c) * kQueryTile + q]), acc[c][q]);
      }
    }
    for (int c = 1; c < Simd::kScoreChains; ++c) {
      for (int q = 0; q < kCount; ++q)
        acc[0][q] = Simd::add(acc[0][q], acc[c][q]);
    }
    F factor = scale;
    if constexpr (E::kScaled) {
      const auto* scales = reinterpret_cast<const float*>(block + kv.head_dim * kv.block_size);
      factor = Simd::mul(scale, Simd::load(scales + inside));
    }
    for (int q = 0; q < kCount; ++q)
      Simd::store(scratch.scores + q * kPartition + (t - span.begin), Simd::mul(acc[0][q], factor));
  }
}

// Turns a query's scores into exp(score - maximum), zero where it may not see, and gives maximum and sum.
void soften(float* scores, std::int64_t visible, std::int64_t count, float* maximum, float* sum) {
  using F = typename Simd::F;
  F largest = Simd::set1(-__builtin_inff());
  for (std::int64_t i = 0; i < visible; i += Simd::kLanes) {
    largest = Simd::max(largest, Simd::keep_first(Simd::load(scores + i), visible - i, -__builtin_inff()));
  }
  const float top = Simd::reduce_max(largest);
  const F shift = Simd::set1(top);
  F total = Simd::zero();
  for (std::int64_t i = 0; i < count; i += Simd::kLanes) {
    const F e = exp_vector(Simd::sub(Simd::load(scores + i), shift));
    const F kept = Simd::keep_first(e, visible - i, 0.0f);
    Simd::store(scores + i, kept);
    total = Simd::add(total, kept);
  }
  *maximum = top;
  *sum = Simd::reduce_add(total);
}

// weighted[q][d..] += probability * V over the span, for kWidth vectors of columns; from zero where `begin`.
template <class E, int kCount, int kWidth>
void weigh_columns(const KvHeadView& kv, const std::int32_t* table, Span span, const float* scores, std::int64_t column,
                   bool begin, float* weighted) {
  using F = typename Simd::F;
  F acc[kCount][kWidth];
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w) {
      acc[q][w] = begin ? Simd::zero() : Simd::load(weighted + q * kv.padded_dim + column + w * Simd::kLanes);
    }
  }
  for (std::int64_t t = span.begin; t < span.end;) {
    const std::byte* block = key_block(kv, table, t) + kv.value_offset;
    const std::int64_t block_end = t - t % kv.block_size + kv.block_size;
    const std::int64_t end = block_end < span.end ? block_end : span.end;
    const std::byte* value = block + ((t % kv.block_size) * kv.padded_dim + column) * E::kBytes;
    for (; t < end; ++t, value += kv.padded_dim * E::kBytes) {
      const float* p = scores + (t - span.begin);
      F v[kWidth];
      for (int w = 0; w < kWidth; ++w)
        v[w] = E::load(value + w * Simd::kLanes * E::kBytes);
      for (int q = 0; q < kCount; ++q) {
        const F weight = Simd::set1(p[q * kPartition]);
        for (int w = 0; w < kWidth; ++w)
          acc[q][w] = Simd::fma(weight, v[w], acc[q][w]);
      }
    }
  }
  for (int q = 0; q < kCount; ++q) {
    for (int w = 0; w < kWidth; ++w)
      Simd::store(weighted + q * kv.padded_dim + column + w * Simd::kLanes, acc[q][w]);
  }
}

// int8 values: a token's scale is folded into its probabilities.
void fold_value_scales(const KvHeadView& kv, const std::int32_t* table, Span span, std::int64_t count, float* scores) {
  for (std::int64_t t = span.begin; t < span.end; t += Simd::kLanes) {
    const std::byte* value = key_block(kv, table, t) + kv.value_offset;
    const auto* scales = reinterpret_cast<const float*>(value + kv.block_size * kv.padded_dim) + t % kv.block_size;
    for (std::int64_t q = 0; q < count; ++q) {
      float* p = scores + q * kPartition + (t - span.begin);
      const typename Simd::F folded = Simd::mul(Simd::load(p), Simd::load(scales));
      Simd::store(p, Simd::keep_first(folded, span.end - t, 0.0f));
    }
  }
}

// The tokens of the partition that some query of the tile sees.
inline Span visible_span(const QueryTile& tile, std::int64_t partition) {
  Span span{partition * kPartition, partition * kPartition};
  for (std::int64_t q = 0; q < tile.count; ++q)
    span.end = tile.visible[q] > span.end ? tile.visible[q] : span.end;
  if (span.end > span.begin + kPartition) span.end = span.begin + kPartition;
  return span;
}

template <int kCount>
void pack_queries(const QueryTile& tile, std::int64_t head_dim, float* queries) {
  for (std::int64_t q = 0; q < kCount; ++q) {
    const float* query = tile.query[q < tile.count ? q : 0];
    for (std::int64_t d = 0; d < head_dim; ++d)
      queries[d * kQueryTile + q] = query[d];
  }
}

template <class E, int kCount>
void soften_tile(const KvHeadView& kv, const std::int32_t* table, const QueryTile& tile, Span span,
                 const AttentionScratch& scratch, const SoftmaxState& out) {
  const std::int64_t count = span.end - span.begin;
  for (std::int64_t q = 0; q < kCount; ++q) {
    std::int64_t visible = tile.visible[q < tile.count ? q : 0] - span.begin;
    visible = visible < 0 ? 0 : visible > count ? count : visible;
    soften(scratch.scores + q * kPartition, visible, count, out.maximum + q, out.sum + q);
  }
  if constexpr (E::kScaled) fold_value_scales(kv, table, span, kCount, scratch.scores);
}

template <class E, int kCount>
void weigh_values(const KvHeadView& kv, const std::int32_t* table, Span span, const float* scores, bool begin,
                  float* weighted) {
  constexpr int kWide = kCount == 8 ? Simd::kValueVecs : 2 * Simd::kValueVecs;
  std::int64_t column = 0;
  for (; column + kWide * Simd::kLanes <= kv.padded_dim; column += kWide * Simd::kLanes) {
    weigh_columns<E, kCount, kWide>(kv, table, span, scores, column, begin, weighted);
  }
  for (; column < kv.padded_dim; column += Simd::kLanes)
    weigh_columns<E, kCount, 1>(kv, table, span, scores, column, begin, weighted);
}

template <class E, int kCount>
void attend_tile(const KvHeadView& kv, const std::int32_t* table, const QueryTile& tile, std::int64_t partition,
                 const AttentionScratch& scratch, const SoftmaxState& out) {
  const Span span = visible_span(tile, partition);
  pack_queries<kCount>(tile, kv.head_dim, scratch.queries);
  score_keys<E, kCount>(kv, table, tile, span, scratch);
  soften_tile<E, kCount>(kv, table, tile, span, scratch, out);
  weigh_values<E, kCount>(kv, table, span, scratch.scores, true, out.weighted);
}

// The arithmetic of attend_tile for every head, its memory accesses in another order.
template <class E, int kCount>
void attend_together(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                     std::int64_t partition, const AttentionScratch* scratch, const SoftmaxState* out) {
  const Span span = visible_span(tiles[0], partition);
  const std::int64_t step = kv[0].block_size;  // divides a partition, or is divided by it
  const auto block_of = [&](std::int64_t t) { return Span{t, t + step < span.end ? t + step : span.end}; };
  for (std::int64_t h = 0; h < num_heads; ++h)
    pack_queries<kCount>(tiles[h], kv[h].head_dim, scratch[h].queries);
  for (std::int64_t t = span.begin; t < span.end; t += step) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      const AttentionScratch part{scratch[h].queries, scratch[h].scores + (t - span.begin)};
      score_keys<E, kCount>(kv[h], table, tiles[h], block_of(t), part);
    }
  }
  for (std::int64_t h = 0; h < num_heads; ++h)
    soften_tile<E, kCount>(kv[h], table, tiles[h], span, scratch[h], out[h]);
  for (std::int64_t t = span.begin; t < span.end; t += step) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      weigh_values<E, kCount>(kv[h], table, block_of(t), scratch[h].scores + (t - span.begin), t == span.begin,
                              out[h].weighted);
    }
  }
}

template <class E>
void attend_heads_element(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles,
                          std::int64_t num_heads, std::int64_t partition, const AttentionScratch* scratch,
                          const SoftmaxState* out) {
  const std::int64_t count = tiles[0].count;
  if (count > 4) return attend_together<E, 8>(kv, table, tiles, num_heads, partition, scratch, out);
  if (count > 2) return attend_together<E, 4>(kv, table, tiles, num_heads, partition, scratch, out);
  if (count > 1) return attend_together<E, 2>(kv, table, tiles, num_heads, partition, scratch, out);
  attend_together<E, 1>(kv, table, tiles, num_heads, partition, scratch, out);
}

void attend_heads(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                  std::int64_t partition, const AttentionScratch* scratch, const SoftmaxState* out) {
  switch (kv[0].element) {
    case KvElement::kF32: return attend_heads_element<KvF32>(kv, table, tiles, num_heads, partition, scratch, out);
    case KvElement::kF16: return attend_heads_element<KvF16>(kv, table, tiles, num_heads, partition, scratch, out);
    case KvElement::kBF16: return attend_heads_element<KvBF16>(kv, table, tiles, num_heads, partition, scratch, out);
    case KvElement::kI8: return attend_heads_element<KvI8>(kv, table, tiles, num_heads, partition, scratch, out);
  }
}

template <class E>
void attend_element(const KvHeadView& kv, const std::int32_t* table, const QueryTile& tile, std::int64_t partition,
                    const AttentionScratch& scratch, const SoftmaxState& out) {
  if (tile.count > 4) return attend_tile<E, 8>(kv, table, tile, partition, scratch, out);
  if (tile.count > 2) return attend_tile<E, 4>(kv, table, tile, partition, scratch, out);
  if (tile.count > 1) return attend_tile<E, 2>(kv, table, tile, partition, scratch, out);
  attend_tile<E, 1>(kv, table, tile, partition, scratch, out);
}

void attend(const KvHeadView& kv, const std::int32_t* table, const QueryTile& tile, std::int64_t partition,
            const AttentionScratch& scratch, const SoftmaxState& out) {
  switch (kv.element) {
    case KvElement::kF32: return attend_element<KvF32>(kv, table, tile, partition, scratch, out);
    case KvElement::kF16: return attend_element<KvF16>(kv, table, tile, partition, scratch, out);
    case KvElement::kBF16: return attend_element<KvBF16>(kv, table, tile, partition, scratch, out);
    case KvElement::kI8: return attend_element<KvI8>(kv, table, tile, partition, scratch, out);
  }
}

[[gnu::always_inline]] inline float exp_scalar(float x) {
  float lanes[Simd::kLanes];
  Simd::store(lanes, exp_vector(Simd::set1(x)));
  return lanes[0];
}

void merge(const SoftmaxState& state, const SoftmaxState& part, std::int64_t count, std::int64_t padded_dim) {
  using F = typename Simd::F;
  for (std::int64_t q = 0; q < count; ++q) {
    if (part.sum[q] == 0.0f) continue;
    const float top = state.maximum[q] > part.maximum[q] ? state.maximum[q] : part.maximum[q];
    const float keep = exp_scalar(state.maximum[q] - top);
    const float add = exp_scalar(part.maximum[q] - top);
    state.maximum[q] = top;
    state.sum[q] = state.sum[q] * keep + part.sum[q] * add;
    float* into = state.weighted + q * padded_dim;
    const float* from = part.weighted + q * padded_dim;
    for (std::int64_t d = 0; d < padded_dim; d += Simd::kLanes) {
      const F kept = Simd::mul(Simd::load(into + d), Simd::set1(keep));
      Simd::store(into + d, Simd::fma(Simd::load(from + d), Simd::set1(add), kept));
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
