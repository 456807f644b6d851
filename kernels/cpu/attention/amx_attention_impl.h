// Attention on AMX bf16 tiles. Queries, weights of the softmax, K and V go in as the sum of two bf16 values, a high and
// a low one, which together keep 16 bits; K and V of bf16 or int8 are exact in one. Any thread. Included by a level
// file behind its Simd wrapper (sixteen lanes), attention_impl.h and amx_gemm_impl.h; internal linkage. Invariant: one
// score, and one sum over V, is a chain of tile products in order, whatever other rows are in the tile.
#pragma once

#include "kernels/cpu/attention/attention_impl.h"
#include "kernels/cpu/products/amx_gemm_impl.h"

namespace quire {
namespace {

// Left operands are rows of f32 in which each run of 32 was replaced by 32 high and 32 low halves. Right operands are
// tiles of pairs, the high one followed by the low one if there is any.
constexpr std::int64_t kRun = kTileDepth;
constexpr std::int64_t kTileFloats = kTileBytes / 4;
constexpr std::int64_t kPartitionRuns = kPartition / kRun;
// Tiles of queries keep their scores, or their weights, in memory until the last product with V: one tile is scored
// while the previous one is softened and the one before that is multiplied with V.
constexpr std::int64_t kTilesInWork = 3;
// Queries whose maxima are found together, so that their latencies overlap.
constexpr std::int64_t kMaximaTogether = 4;

template <class E>
constexpr std::int64_t kTerms = __is_same(E, KvBF16) || __is_same(E, KvI8) ? 1 : 2;

constexpr std::int64_t tile_runs(std::int64_t count) {
  return (count + kRun - 1) / kRun;
}

// Replaces 32 values by their high and low halves.
[[gnu::always_inline]] inline void split_run(float* at, typename Simd::F first, typename Simd::F second) {
  const typename Simd::F high = Simd::nearest_bf16(first);
  const typename Simd::F high_second = Simd::nearest_bf16(second);
  Simd::store_bf16_both(at, high, high_second);
  Simd::store_bf16_both(at + Simd::kLanes, Simd::sub(first, high), Simd::sub(second, high_second));
}

// [query_tile][padded_depth(head_dim)], times the scale of the softmax to base 2.
void pack_split_queries(const float* const* rows, std::int64_t count, std::int64_t head_dim, float scale, float* out) {
  using F = typename Simd::F;
  const F factor = Simd::set1(scale * 1.44269504f);
  for (std::int64_t q = 0; q < count; ++q) {
    for (std::int64_t d = 0; d < head_dim; d += kRun, out += kRun) {
      const F first = Simd::load_partial(rows[q] + d, head_dim - d);
      const F second = Simd::load_partial(rows[q] + d + Simd::kLanes, head_dim - d - Simd::kLanes);
      split_run(out, Simd::mul(first, factor), Simd::mul(second, factor));
    }
  }
}

// Stores a row of pairs of a right operand.
template <class E>
[[gnu::always_inline]] inline void put_pairs(std::byte* out, typename Simd::F even, typename Simd::F odd) {
  if constexpr (kTerms<E> == 1) {
    Simd::store_exact_pairs(out, even, odd);
  } else {
    const typename Simd::F high_even = Simd::nearest_bf16(even);
    const typename Simd::F high_odd = Simd::nearest_bf16(odd);
    Simd::store_exact_pairs(out, high_even, high_odd);
    Simd::store_bf16_pairs(out + kTileBytes, Simd::sub(even, high_even), Simd::sub(odd, high_odd));
  }
}

// Right operands of a partition: keys [vector of tokens][run of dimensions][term], values [run of tokens][vector of
// dimensions][term].
struct Operands {
  std::byte* keys;
  std::byte* values;
};

template <class E>
void convert_keys(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end, std::byte* keys) {
  constexpr std::int64_t kUnroll = 8;  // divides every head size
  const std::int64_t row_bytes = kv.block_size * E::kBytes;
  const std::int64_t depth = padded_depth(kv.head_dim);
  for (std::int64_t i = begin; i < end; ++i) {
    const Place& place = places.at[i];
    const std::byte* key = kv.base + place.block + place.inside * E::kBytes;
    const std::byte* ahead = kv.base + place.ahead_of_key + (place.key_before_value ? kv.value_offset : 0) +
                             place.inside * kv.head_dim * E::kBytes;
    std::byte* tiles = keys + i * depth / kRun * kTerms<E> * kTileBytes;
    const auto row = [&](std::int64_t d) { return tiles + d / kRun * kTerms<E> * kTileBytes + d % kRun * 32; };
    for (std::int64_t d = 0; d < kv.head_dim; d += kUnroll) {
      for (std::int64_t j = 0; j < kUnroll; j += 2, key += 2 * row_bytes)
        put_pairs<E>(row(d + j), E::load(key), E::load(key + row_bytes));
      fetch_ahead<kUnroll * Simd::kLanes * E::kBytes>(ahead + d * Simd::kLanes * E::kBytes);
    }
    for (std::int64_t d = kv.head_dim; d < depth; d += 2)
      put_pairs<E>(row(d), Simd::zero(), Simd::zero());
    if constexpr (E::kScaled) {
      __builtin_prefetch(kv.base + place.ahead_of_key + key_scale_offset(kv, place));
      __builtin_prefetch(value_scales(kv, place));
    }
  }
}

// Replaces tokens beyond the context by zeros.
template <class E>
void convert_values(const KvHeadView& kv, const Places& places, std::int64_t begin, std::int64_t end,
                    std::byte* values) {
  using F = typename Simd::F;
  const std::int64_t row_bytes = kv.padded_dim * E::kBytes;
  const std::int64_t columns = kv.padded_dim / Simd::kLanes;
  for (std::int64_t token = begin * kRun; token < end * kRun; token += 2) {
    std::byte* out = values + token / kRun * columns * kTerms<E> * kTileBytes + token % kRun * 32;
    const std::int64_t left = places.num_tokens - token;
    if (left <= 0) {
      for (std::int64_t c = 0; c < columns; ++c)
        put_pairs<E>(out + c * kTerms<E> * kTileBytes, Simd::zero(), Simd::zero());
      continue;
    }
    const Place& place = places.at[token / Simd::kLanes];
    const std::int64_t from = (place.inside + token % Simd::kLanes) * row_bytes;
    const std::byte* value = kv.base + place.block + kv.value_offset + from;
    const std::byte* ahead = kv.base + place.ahead_of_value + (place.value_before_key ? 0 : kv.value_offset) + from;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t at = c * Simd::kLanes * E::kBytes;
      const F odd = left > 1 ? E::load(value + row_bytes + at) : Simd::zero();
      put_pairs<E>(out + c * kTerms<E> * kTileBytes, E::load(value + at), odd);
    }
    for (std::int64_t at = 0; at < 2 * row_bytes; at += 64)
      __builtin_prefetch(ahead + at);
  }
}

template <int kPanels, class Tiles>
[[gnu::always_inline]] inline void multiply_all(Tiles& tiles, TileShape shape) {
  each_sum<kPanels>(shape, [&]<int kHalf, int kPanel>() { tiles.template multiply<kHalf, kPanel>(); });
}

// Sums += one run of the rows times one or two right operands: low times high, high times high, high times low. Rows
// are `stride` floats apart, operands `panel_bytes`.
template <class E, int kPanels, class Tiles>
[[gnu::always_inline]] inline void multiply_run(Tiles& tiles, TileShape shape, const float* rows, std::int64_t stride,
                                                const std::byte* operand, std::int64_t panel_bytes) {
  const auto load_left = [&](const float* from) {
    tiles.template load_rows<0>(from, stride * 4);
    if (shape.second > 0) tiles.template load_rows<1>(from + kTileRows * stride, stride * 4);
  };
  const auto load_right = [&](const std::byte* from) {
    tiles.template load_weights<0>(from);
    if constexpr (kPanels == 2) tiles.template load_weights<1>(from + panel_bytes);
  };
  load_right(operand);
  load_left(rows + Simd::kLanes);
  multiply_all<kPanels>(tiles, shape);
  load_left(rows);
  multiply_all<kPanels>(tiles, shape);
  if constexpr (kTerms<E> == 2) {
    load_right(operand + kTileBytes);
    multiply_all<kPanels>(tiles, shape);
  }
}

// Two halves of rows by two panels of columns, in a matrix whose rows are `stride` floats apart.
inline SumsPlace in_matrix(float* first, std::int64_t stride) {
  return {first, stride, kTileRows * stride, kTileRows};
}

// A tile of queries over one partition of one head. Rows of `scores` turn from scores to split weights in place.
template <class E, class Tiles>
struct TileAttention {
  const KvHeadView* kv;
  const Places* places;
  const QueryTile* queries;
  std::int64_t first_token;
  Operands operands;
  float* scores;  // [query_tile][kPartition]
  SoftmaxState out;

  // Runs of tokens that some query of the tile sees.
  std::int64_t token_runs() const { return tile_runs(tokens_seen(*queries, queries->count - 1, first_token, *places)); }
  // Products with K go by two vectors of tokens and by runs of dimensions, those with V by two vectors of dimensions
  // and by runs of tokens.
  std::int64_t key_products() const { return token_runs() * tile_runs(kv->head_dim); }
  std::int64_t value_products() const { return token_runs() * tile_runs(kv->padded_dim); }

  // Two vectors of tokens, `tokens` such pairs from the first, by one run of dimensions.
  void multiply_keys(Tiles& tiles, TileShape shape, std::int64_t tokens, std::int64_t run) const {
    constexpr std::int64_t kStep = kTerms<E> * kTileBytes;
    const std::int64_t runs = tile_runs(kv->head_dim);
    if (run == 0) tiles.clear();
    multiply_run<E, 2>(tiles, shape, queries->queries + run * kRun, runs * kRun,
                       operands.keys + (2 * tokens * runs + run) * kStep, runs * kStep);
    if (run == runs - 1) store_sums<2>(tiles, shape, in_matrix(scores + tokens * kRun, kPartition));
  }

  // Two vectors of dimensions, `pair` such pairs from the first, by the `run`-th of the runs of tokens from `begin` to
  // `end`: sums continue those of the runs before `begin`.
  void multiply_values(Tiles& tiles, TileShape shape, std::int64_t begin, std::int64_t end, std::int64_t pair,
                       std::int64_t run) const {
    const std::int64_t column = pair * kRun;
    if (column + Simd::kLanes < kv->padded_dim) {
      multiply_columns<2>(tiles, shape, begin, end, column, begin + run);
    } else {
      multiply_columns<1>(tiles, shape, begin, end, column, begin + run);
    }
  }

  template <int kPanels>
  void multiply_columns(Tiles& tiles, TileShape shape, std::int64_t begin, std::int64_t end, std::int64_t column,
                        std::int64_t run) const {
    constexpr std::int64_t kStep = kTerms<E> * kTileBytes;
    const SumsPlace sums = in_matrix(out.weighted + column, kv->padded_dim);
    if (run == 0) {
      tiles.clear();
    } else if (run == begin) {
      load_sums<kPanels>(tiles, shape, sums);
    }
    multiply_run<E, kPanels>(tiles, shape, scores + run * kRun, kPartition,
                             operands.values + (run * kv->padded_dim + column) / Simd::kLanes * kStep, kStep);
    if (run == end - 1) store_sums<kPanels>(tiles, shape, sums);
  }

  void find_maxima(std::int64_t begin) const {
    for (std::int64_t q = begin; q < queries->count && q < begin + kMaximaTogether; ++q) {
      float* row = scores + q * kPartition;
      const std::int64_t seen = tokens_seen(*queries, q, first_token, *places);
      if constexpr (E::kScaled) {
        for (std::int64_t i = 0; i * Simd::kLanes < seen; ++i) {
          const typename Simd::F score = Simd::load(row + i * Simd::kLanes);
          Simd::store(row + i * Simd::kLanes, Simd::mul(score, Simd::load(key_scales(*kv, places->at[i]))));
        }
      }
      out.maximum[q] = largest_score(row, seen);
    }
  }

  void soften_row(std::int64_t q) const {
    float* row = scores + q * kPartition;
    const std::int64_t seen = tokens_seen(*queries, q, first_token, *places);
    const std::int64_t runs = token_runs();
    out.sum[q] = soften<E>(*kv, *places, runs * kRun / Simd::kLanes, seen, out.maximum[q], row);
    for (std::int64_t r = 0; r < runs; ++r, row += kRun)
      split_run(row, Simd::load(row), Simd::load(row + Simd::kLanes));
  }
};

// Products of one tile in order: all runs of one pair of vectors before the next pair.
struct ProductCursor {
  std::int64_t left;
  std::int64_t runs;
  std::int64_t pair = 0;
  std::int64_t run = 0;
  void advance() {
    --left;
    if (++run == runs) {
      run = 0;
      ++pair;
    }
  }
};

// Attention for some tiles of one head. Products of other tiles run between the softmax of rows: they use the tile
// unit, the softmax the vector units.
template <class E, class Tiles>
void attend_query_tiles(const TileAttention<E, Tiles>* work, std::int64_t count, TileShape shape) {
  Tiles tiles;
  tiles.configure(shape.first, shape.second);
  for (std::int64_t t = 0; t < count + kTilesInWork - 1; ++t) {
    const TileAttention<E, Tiles>* const scored = t < count ? work + t : nullptr;
    const TileAttention<E, Tiles>* const softened = t >= 1 && t <= count ? work + t - 1 : nullptr;
    const TileAttention<E, Tiles>* const weighed = t >= 2 ? work + t - 2 : nullptr;
    ProductCursor keys{scored == nullptr ? 0 : scored->key_products(), tile_runs(work->kv->head_dim)};
    ProductCursor values{weighed == nullptr ? 0 : weighed->value_products(),
                         weighed == nullptr ? 0 : weighed->token_runs()};
    const auto multiply_next = [&] {
      if (keys.left > 0) {
        scored->multiply_keys(tiles, shape, keys.pair, keys.run);
        keys.advance();
      } else {
        weighed->multiply_values(tiles, shape, 0, values.runs, values.pair, values.run);
        values.advance();
      }
    };
    const std::int64_t products = keys.left + values.left;
    const std::int64_t rows = softened == nullptr ? 0 : softened->queries->count;
    std::int64_t due = 0;  // in units of a product / rows
    for (std::int64_t q = 0; q < rows; ++q) {
      if (q % kMaximaTogether == 0) softened->find_maxima(q);
      softened->soften_row(q);
      for (due += products; due >= rows; due -= rows)
        multiply_next();
    }
    while (keys.left + values.left > 0)
      multiply_next();
  }
  tiles.release();
}

// Computes one tile of each of several heads, interleaved, so that memory is read roughly in the order of its
// addresses.
template <class E, class Tiles>
void attend_head_tiles(const TileAttention<E, Tiles>* work, std::int64_t count, TileShape shape) {
  constexpr std::int64_t kStepRuns = kStepVecs * Simd::kLanes / kRun;
  const std::int64_t token_runs = work[0].token_runs();
  const std::int64_t num_vecs = work[0].places->num_vecs;
  const std::int64_t key_runs = tile_runs(work[0].kv->head_dim);
  const auto bounded = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  Tiles tiles;
  tiles.configure(shape.first, shape.second);
  for (std::int64_t run = 0; run < token_runs; run += kStepRuns) {
    const std::int64_t end = bounded(run + kStepRuns, token_runs);
    for (std::int64_t h = 0; h < count; ++h) {
      convert_keys<E>(*work[h].kv, *work[h].places, run * 2, bounded(end * 2, num_vecs), work[h].operands.keys);
      for (std::int64_t i = run; i < end; ++i) {
        for (std::int64_t k = 0; k < key_runs; ++k)
          work[h].multiply_keys(tiles, shape, i, k);
      }
    }
  }
  for (std::int64_t h = 0; h < count; ++h) {
    for (std::int64_t q = 0; q < work[h].queries->count; ++q) {
      if (q % kMaximaTogether == 0) work[h].find_maxima(q);
      work[h].soften_row(q);
    }
  }
  for (std::int64_t run = 0; run < token_runs; run += kStepRuns) {
    const std::int64_t end = bounded(run + kStepRuns, token_runs);
    for (std::int64_t h = 0; h < count; ++h) {
      convert_values<E>(*work[h].kv, *work[h].places, run, end, work[h].operands.values);
      for (std::int64_t pair = 0; pair < tile_runs(work[h].kv->padded_dim); ++pair) {
        for (std::int64_t i = 0; i < end - run; ++i)
          work[h].multiply_values(tiles, shape, run, end, pair, i);
      }
    }
  }
  tiles.release();
}

// Floats of the operands of K, of V and of everything.
inline std::int64_t key_floats(std::int64_t head_dim) {
  return kPartition / Simd::kLanes * tile_runs(head_dim) * 2 * kTileFloats;
}
inline std::int64_t value_floats(std::int64_t head_dim) {
  return kPartitionRuns * (padded_depth(head_dim) / Simd::kLanes) * 2 * kTileFloats;
}
std::int64_t tile_attention_scratch(std::int64_t head_dim) {
  return key_floats(head_dim) + value_floats(head_dim) + kHeadsTogether * kMaxQueryTile * kPartition;
}

static_assert(kTilesInWork <= kHeadsTogether && kHeadsTogether <= kTilesTogether);

template <class E, class Tiles>
void attend_tiled(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                  std::int64_t num_tiles, std::int64_t partition, float* scratch, const SoftmaxState* out) {
  const QueryTile& last = tiles[num_tiles - 1];
  Places places;
  find_places(kv[0], table, partition * kPartition, last.visible[last.count - 1], &places);
  float* values = scratch + key_floats(kv[0].head_dim);
  float* scores = values + value_floats(kv[0].head_dim);
  const Operands operands{reinterpret_cast<std::byte*>(scratch), reinterpret_cast<std::byte*>(values)};
  TileAttention<E, Tiles> work[kTilesTogether];
  const TileShape shape = tile_shape(tiles[0].count);  // the first tile has the most queries
  if (num_tiles == 1) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      float* own = scores + h * kMaxQueryTile * kPartition;
      work[h] = {kv + h, &places, tiles + h, partition * kPartition, operands, own, out[h]};
    }
    attend_head_tiles(work, num_heads, shape);
    return;
  }
  for (std::int64_t t = 0; t < num_tiles; ++t) {
    float* own = scores + t % kTilesInWork * kMaxQueryTile * kPartition;
    work[t] = {kv, &places, tiles + t, partition * kPartition, operands, own, out[t]};
  }
  convert_keys<E>(kv[0], places, 0, places.num_vecs, operands.keys);
  convert_values<E>(kv[0], places, 0, tile_runs(places.num_tokens), operands.values);
  attend_query_tiles(work, num_tiles, shape);
}

template <class Tiles>
void attend_amx(const KvHeadView* kv, const std::int32_t* table, const QueryTile* tiles, std::int64_t num_heads,
                std::int64_t num_tiles, std::int64_t partition, float* scratch, const SoftmaxState* out) {
  const auto attend_element = [&]<class E>(E) {
    attend_tiled<E, Tiles>(kv, table, tiles, num_heads, num_tiles, partition, scratch, out);
  };
  switch (kv[0].element) {
    case KvElement::kF32: return attend_element(KvF32{});
    case KvElement::kF16: return attend_element(KvF16{});
    case KvElement::kBF16: return attend_element(KvBF16{});
    case KvElement::kI8: return attend_element(KvI8{});
    case KvElement::kI4: return;  // attend_masked handles it
  }
}

}  // namespace
}  // namespace quire
