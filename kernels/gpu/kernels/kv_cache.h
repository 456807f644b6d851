// The paged cache on a device: where a token's K and V lie, and store_kv, which puts them there in the cache's type.
// A block holds its layers one after the other; in a layer the heads of K, then those of V, each [token][dim], for int8
// with an f32 scale per token behind it.
#pragma once

#include "kernels/gpu/kernels/elementary.h"

namespace quire::gpu {

enum class KvType : std::uint8_t { kF32, kF16, kBF16, kI8 };

constexpr int kv_element_bytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kI8 ? 1 : 2;
}

// One layer of the cache.
struct KvLayerView {
  std::byte* base = nullptr;      // of block 0, at this layer
  std::int64_t base_offset = 0;   // of the layer in a block
  std::int64_t block_stride = 0;  // bytes from one block to the next
  std::int64_t block_size = 0;    // tokens
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t key_bytes = 0;  // of one head in a block, its scales included
  std::int64_t value_bytes = 0;
  std::int64_t value_offset = 0;  // from the layer's first key to its first value
};

template <KvType kType, class Thread>
QUIRE_DEVICE float kv_value(Thread& t, const std::byte* from, std::int64_t i) {
  if constexpr (kType == KvType::kF32) return load_as<float>(from + 4 * i);
  if constexpr (kType == KvType::kF16) return t.half_to_float(load_as<std::uint16_t>(from + 2 * i));
  if constexpr (kType == KvType::kBF16)
    return float_of_bits(static_cast<std::uint32_t>(load_as<std::uint16_t>(from + 2 * i)) << 16);
  if constexpr (kType == KvType::kI8) return static_cast<float>(load_as<std::int8_t>(from + i));
}

// Rounds half to even.
QUIRE_DEVICE std::uint16_t bf16_of(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct StoreKvArgs {
  KvLayerView kv;
  const std::int32_t* slots = nullptr;  // [rows] block * block_size + token
  const float* k = nullptr;
  const float* v = nullptr;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
};

// One block a row, a warp for each head of K, then for each of V. Grid: x rows, y heads / 4.
template <KvType kType>
struct StoreKv {
  using Args = StoreKvArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void store(Thread& t, const float* vector, std::int64_t count, std::byte* to, float* scale_to) {
    float inverse = 0.0f;
    if constexpr (kType == KvType::kI8) {
      float bound = 0.0f;
      for (std::int64_t i = t.lane(); i < count; i += kWarpLanes) {
        const float magnitude = vector[i] < 0.0f ? -vector[i] : vector[i];
        bound = bound > magnitude ? bound : magnitude;
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        const float other = t.shuffle_xor(bound, distance);
        bound = bound > other ? bound : other;
      }
      const float scale = bound > 1e-30f ? bound / 127.0f : 0.0f;
      inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
      if (t.lane() == 0) *scale_to = scale;
    }
    for (std::int64_t i = t.lane(); i < count; i += kWarpLanes) {
      if constexpr (kType == KvType::kF32) {
        reinterpret_cast<float*>(to)[i] = vector[i];
      } else if constexpr (kType == KvType::kF16) {
        reinterpret_cast<std::uint16_t*>(to)[i] = t.float_to_half(vector[i]);
      } else if constexpr (kType == KvType::kBF16) {
        reinterpret_cast<std::uint16_t*>(to)[i] = bf16_of(vector[i]);
      } else {
        const float scaled = vector[i] * inverse;
        const float above = scaled > -127.0f ? scaled : -127.0f;  // a NaN becomes -127
        reinterpret_cast<std::int8_t*>(to)[i] = static_cast<std::int8_t>(round_even(above < 127.0f ? above : 127.0f));
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const KvLayerView& kv = args.kv;
    const std::int64_t row = t.block_x();
    const std::int64_t head = t.block_y() * (kThreads / kWarpLanes) + t.warp();
    const std::int64_t num_heads = kv.value_offset / kv.key_bytes;
    if (head >= num_heads) return;  // the whole warp
    const std::int64_t slot = args.slots[row];
    const std::int64_t token = slot % kv.block_size;
    std::byte* block = kv.base + slot / kv.block_size * kv.block_stride;
    constexpr int kBytes = kv_element_bytes(kType);
    std::byte* keys = block + head * kv.key_bytes;
    store(t, args.k + row * args.k_stride + head * kv.key_dim, kv.key_dim, keys + token * kv.key_dim * kBytes,
          reinterpret_cast<float*>(keys + kv.block_size * kv.key_dim) + token);
    if (kv.value_dim == 0) return;
    std::byte* values = block + kv.value_offset + head * kv.value_bytes;
    store(t, args.v + row * args.v_stride + head * kv.value_dim, kv.value_dim, values + token * kv.value_dim * kBytes,
          reinterpret_cast<float*>(values + kv.block_size * kv.value_dim) + token);
  }
};

}  // namespace quire::gpu
