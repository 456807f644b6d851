// Functions shared by kernels of attention over a paged context: the cache's element types, the places of a partition's
// tokens, base-2 exponentials. Any thread. Included by an ISA level's file; internal linkage. Invariant: vectors of
// tokens lie at multiples of kLanes of the absolute position.
#pragma once

#include "kernels/cpu/rows/elementwise_impl.h"

namespace quire {
namespace {

struct KvF32 {
  static constexpr std::int64_t kBytes = 4;
  static constexpr bool kScaled = false;
  static constexpr bool kGrouped = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load(reinterpret_cast<const float*>(p));
  }
};
struct KvF16 {
  static constexpr std::int64_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr bool kGrouped = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p));
  }
};
struct KvBF16 {
  static constexpr std::int64_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr bool kGrouped = false;
  [[gnu::always_inline]] static typename Simd::F load(const std::byte* p) {
    return Simd::load_bf16(reinterpret_cast<const std::uint16_t*>(p));
  }
};
struct KvI8 {
  static constexpr std::int64_t kBytes = 1;
  static constexpr bool kScaled = true;
  static constexpr bool kGrouped = false;
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
// Vectors of a head's tokens that are processed before the next head's.
constexpr std::int64_t kStepVecs = 2 * Simd::kScoreVecs;

// Place of a vector of tokens, and the bytes to prefetch while it is read, both from a head's base.
struct Place {
  std::int64_t block;
  std::int64_t inside;  // tokens
  std::int64_t ahead_of_key;
  std::int64_t ahead_of_value;
  bool key_before_value;  // ahead_of_key is a block whose V is wanted
  bool value_before_key;  // ahead_of_value is a block whose K is wanted
};

// The tokens of a partition from the first to the last that some query sees, as vectors.
struct Places {
  Place at[kPartitionVecs];
  std::int64_t num_tokens;
  std::int64_t num_vecs;
};

// Reads go through the keys of the partition, then through its values, then to the next partition; data `kStepVecs`
// vectors ahead is prefetched, by whole blocks. begin: the first token, a multiple of kLanes.
inline void find_places(const KvHeadView& kv, const std::int32_t* table, std::int64_t begin, std::int64_t visible,
                        Places* out) {
  const std::int64_t partition_end = (begin / kPartition + 1) * kPartition;
  const std::int64_t end = visible < partition_end ? visible : partition_end;
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

// First token of a partition's vectors: vectors lie at multiples of kLanes of the absolute position, so that the
// order of a query's sums does not depend on the tile.
inline std::int64_t first_token_of(const QueryTile& tile, std::int64_t partition) {
  const std::int64_t begin = partition * kPartition;
  if (tile.mask == nullptr || tile.mask->first[0] <= begin) return begin;
  return tile.mask->first[0] / Simd::kLanes * Simd::kLanes;
}

// The largest of a query's scores; minus infinity if it sees no token.
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

// Tokens that a query sees of those from `first_token` on.
inline std::int64_t tokens_seen(const QueryTile& tile, std::int64_t query, std::int64_t first_token,
                                const Places& places) {
  const std::int64_t seen = tile.visible[query] - first_token;
  return seen < 0 ? 0 : seen > places.num_tokens ? places.num_tokens : seen;
}

}  // namespace
}  // namespace quire
