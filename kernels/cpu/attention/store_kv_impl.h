// Writing K and V to the cache in its element type. Any thread. Included by an ISA level's file; internal linkage.
// Invariant: a token's stored bytes depend on that token alone.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/formats/half.h"

namespace quire {
namespace {

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

// int4 codes of up to kValueGroup features, the nearest ones of minimum + scale * code after both were rounded to f16.
struct Int4Codes {
  std::uint8_t codes[kValueGroup];
  std::uint16_t scale;
  std::uint16_t minimum;
};

Int4Codes int4_codes(const float* x, std::int64_t count) {
  constexpr float kMostCode = 15.0f;
  float low = x[0];
  float high = x[0];
  for (std::int64_t i = 1; i < count; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  Int4Codes out;
  out.scale = float_to_f16((high - low) / kMostCode);
  out.minimum = float_to_f16(low);
  const float scale = f16_to_float(out.scale);
  const float minimum = f16_to_float(out.minimum);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    const float steps = (x[i] - minimum) * inverse + 0.5f;
    out.codes[i] = static_cast<std::uint8_t>(steps > kMostCode ? kMostCode : steps > 0.0f ? steps : 0.0f);
  }
  return out;
}

// `dim`: of the features in a block, of which the vector has head_dim, in groups of kGroup. byte_of(i): where the byte
// of feature i lies; is_high(i): in which of its halves.
template <std::int64_t kGroup, class ByteOf, class IsHigh>
void store_int4(const KvHeadView& kv, std::byte* base, std::int64_t dim, std::int64_t offset, const float* vector,
                const ByteOf& byte_of, const IsHigh& is_high) {
  auto* scales = reinterpret_cast<std::uint16_t*>(base + kv.block_size * dim / 2) + offset;
  for (std::int64_t begin = 0; begin < kv.head_dim; begin += kGroup) {
    const std::int64_t left = kv.head_dim - begin;
    const std::int64_t count = left < kGroup ? left : kGroup;
    const Int4Codes group = int4_codes(vector + begin, count);
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte& byte = base[byte_of(begin + i)];
      const std::byte code{group.codes[i]};
      byte = is_high(begin + i) ? (byte & std::byte{0x0f}) | code << 4 : (byte & std::byte{0xf0}) | code;
    }
    scales[begin / kGroup * kv.block_size] = group.scale;
    scales[(groups_of(dim, kGroup) + begin / kGroup) * kv.block_size] = group.minimum;
  }
}

void store_key(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* key) {
  std::byte* base = kv.base + static_cast<std::size_t>(block) * kv.block_stride;
  if (kv.element == KvElement::kI4) {
    return store_int4<kKeyGroup>(
        kv, base, kv.head_dim, offset, key,
        [&](std::int64_t i) { return (i / kWordCodes * kv.block_size + offset) * 4 + i % 4; },
        [](std::int64_t i) { return i % kWordCodes >= 4; });
  }
  std::byte* scales = base + kv.head_dim * kv.block_size;
  store_vector(kv, base + offset * element_bytes(kv.element), kv.block_size, scales, offset, key);
}

void store_value(const KvHeadView& kv, std::int64_t block, std::int64_t offset, const float* value) {
  std::byte* base = kv.base + static_cast<std::size_t>(block) * kv.block_stride + kv.value_offset;
  if (kv.element == KvElement::kI4) {
    constexpr std::int64_t kHalf = kValueGroup / 2;
    return store_int4<kValueGroup>(
        kv, base, kv.padded_dim, offset, value,
        [&](std::int64_t i) { return offset * kv.padded_dim / 2 + i / kValueGroup * kHalf + i % kHalf; },
        [](std::int64_t i) { return i % kValueGroup >= kHalf; });
  }
  std::byte* scales = base + kv.block_size * kv.padded_dim;
  store_vector(kv, base + offset * kv.padded_dim * element_bytes(kv.element), 1, scales, offset, value);
}

}  // namespace
}  // namespace quire
