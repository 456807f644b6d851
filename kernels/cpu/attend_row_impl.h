// Attention of one query vector over any range of a paged context, with what the tiled kernel leaves out: windows,
// caps, sinks, biases by distance, values inside keys. Any thread. Included by an ISA level's file behind
// attention_impl.h; internal linkage. Invariant: vectors of tokens begin at multiples of kLanes of the absolute
// position, so that the order of the sums depends on the query alone; tokens outside the range reach no result.
#pragma once

#include "kernels/cpu/attention_impl.h"

namespace quire {
namespace {

[[gnu::always_inline]] inline typename Simd::F tanh_vector(typename Simd::F x) {
  const typename Simd::F e = exp_vector(Simd::add(x, x));
  return Simd::sub(Simd::set1(1.0f), Simd::div(Simd::set1(2.0f), Simd::add(e, Simd::set1(1.0f))));
}

// The vectors of tokens that a range touches.
struct RowRange {
  std::int64_t first;  // token of the first vector
  std::int64_t vecs;
};

inline RowRange row_range(const RowAttention& row) {
  const std::int64_t first = row.begin / Simd::kLanes * Simd::kLanes;
  return {first, (row.end - first + Simd::kLanes - 1) / Simd::kLanes};
}

inline const std::byte* block_of(const KvHeadView& kv, const std::int32_t* table, std::int64_t token) {
  return kv.base + table[token / kv.block_size] * static_cast<std::int64_t>(kv.block_stride);
}

inline const float* row_key_scales(const KvHeadView& kv, const std::byte* block, std::int64_t inside) {
  return reinterpret_cast<const float*>(block + kv.head_dim * kv.block_size) + inside;
}

template <class E>
void score_row(const KvHeadView& kv, const RowAttention& row, const RowRange& range, float* scores) {
  using F = typename Simd::F;
  for (std::int64_t i = 0; i < range.vecs; ++i) {
    const std::int64_t token = range.first + i * Simd::kLanes;
    const std::int64_t inside = token % kv.block_size;
    const std::byte* block = block_of(kv, row.block_table, token);
    const std::byte* key = block + inside * E::kBytes;
    F acc = Simd::zero();
    for (std::int64_t d = 0; d < kv.head_dim; ++d, key += kv.block_size * E::kBytes)
      acc = Simd::fma(E::load(key), Simd::set1(row.query[d]), acc);
    acc = Simd::mul(acc, Simd::set1(row.scale));
    if constexpr (E::kScaled) acc = Simd::mul(acc, Simd::load(row_key_scales(kv, block, inside)));
    if (row.softcap > 0.0f) {
      acc = Simd::mul(tanh_vector(Simd::div(acc, Simd::set1(row.softcap))), Simd::set1(row.softcap));
    }
    Simd::store(scores + i * Simd::kLanes, acc);
  }
  for (std::int64_t i = 0; i < range.vecs * Simd::kLanes; ++i) {
    const std::int64_t token = range.first + i;
    if (token < row.begin || token >= row.end) {
      scores[i] = -__builtin_inff();
    } else if (row.slope != 0.0f) {
      const std::int64_t distance = token < row.position ? row.position - token : token - row.position;
      scores[i] -= row.slope * static_cast<float>(distance);
    }
  }
}

// Scores become probabilities that are not normalised; gives their sum, the sink's included.
inline float soften_row(const RowAttention& row, const RowRange& range, float* scores) {
  using F = typename Simd::F;
  F largest = Simd::set1(row.has_sink ? row.sink : -__builtin_inff());
  for (std::int64_t i = 0; i < range.vecs; ++i)
    largest = Simd::max(largest, Simd::load(scores + i * Simd::kLanes));
  const float maximum = Simd::reduce_max(largest);
  F total = Simd::zero();
  for (std::int64_t i = 0; i < range.vecs; ++i) {
    const F p = exp_vector(Simd::sub(Simd::load(scores + i * Simd::kLanes), Simd::set1(maximum)));
    total = Simd::add(total, p);
    Simd::store(scores + i * Simd::kLanes, p);
  }
  float sum = Simd::reduce_add(total);
  if (row.has_sink) {
    float sink[Simd::kLanes];
    Simd::store(sink, exp_vector(Simd::set1(row.sink - maximum)));
    sum += sink[0];
  }
  return sum;
}

template <class E>
void weigh_row(const KvHeadView& kv, const RowAttention& row, const RowRange& range, const float* scores, float sum) {
  using F = typename Simd::F;
  for (std::int64_t d = 0; d < row.value_dim; d += Simd::kLanes) {
    F acc = Simd::zero();
    for (std::int64_t token = row.begin; token < row.end; ++token) {
      const std::byte* values = block_of(kv, row.block_table, token) + kv.value_offset;
      const std::int64_t inside = token % kv.block_size;
      float p = scores[token - range.first];
      if constexpr (E::kScaled) p *= reinterpret_cast<const float*>(values + kv.block_size * kv.padded_dim)[inside];
      acc = Simd::fma(Simd::set1(p), E::load(values + (inside * kv.padded_dim + d) * E::kBytes), acc);
    }
    Simd::store_partial(row.out + d, Simd::div(acc, Simd::set1(sum)), row.value_dim - d);
  }
}

// V is the first part of K: sums run over tokens, which lie side by side.
template <class E>
void weigh_row_keys(const KvHeadView& kv, const RowAttention& row, const RowRange& range, const float* scores,
                    float sum) {
  using F = typename Simd::F;
  for (std::int64_t d = 0; d < row.value_dim; ++d) {
    F acc = Simd::zero();
    for (std::int64_t i = 0; i < range.vecs; ++i) {
      const std::int64_t token = range.first + i * Simd::kLanes;
      const std::int64_t inside = token % kv.block_size;
      const std::byte* block = block_of(kv, row.block_table, token);
      F v = Simd::keep_first(E::load(block + (d * kv.block_size + inside) * E::kBytes), row.end - token, 0.0f);
      F p = Simd::load(scores + i * Simd::kLanes);
      if constexpr (E::kScaled) {
        p = Simd::mul(p, Simd::keep_first(Simd::load(row_key_scales(kv, block, inside)), row.end - token, 0.0f));
      }
      acc = Simd::fma(p, v, acc);
    }
    row.out[d] = Simd::reduce_add(acc) / sum;
  }
}

template <class E>
void attend_row_element(const KvHeadView& kv, const RowAttention& row, float* scores) {
  const RowRange range = row_range(row);
  score_row<E>(kv, row, range, scores);
  const float sum = soften_row(row, range, scores);
  if (row.value_in_key) return weigh_row_keys<E>(kv, row, range, scores, sum);
  weigh_row<E>(kv, row, range, scores, sum);
}

void attend_row(const KvHeadView& kv, const RowAttention& row, float* scores) {
  switch (kv.element) {
    case KvElement::kF32: return attend_row_element<KvF32>(kv, row, scores);
    case KvElement::kF16: return attend_row_element<KvF16>(kv, row, scores);
    case KvElement::kBF16: return attend_row_element<KvBF16>(kv, row, scores);
    case KvElement::kI8: return attend_row_element<KvI8>(kv, row, scores);
  }
}

}  // namespace
}  // namespace quire
