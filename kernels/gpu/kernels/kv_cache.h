// The paged cache on a device: where a token's K and V lie, and store_kv, which puts them there in the cache's type.
// A block holds its layers one after the other; in a layer the heads of K, then those of V, each [token][dim], for int8
// with an f32 scale per token behind it.
#pragma once

#include "kernels/gpu/kernels/elementary.h"
#include "kernels/gpu/kernels/fours.h"

namespace quire::gpu {

enum class KvType : std::uint8_t { kF32, kF16, kBF16, kI8 };

constexpr int kv_element_bytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kI8 ? 1 : 2;
}

// A layer of the cache.
struct KvLayerView {
  std::byte* base = nullptr;      // this layer in block 0
  std::int64_t base_offset = 0;   // offset of the layer in a block
  std::int64_t block_stride = 0;  // bytes from one block to the next
  std::int64_t block_size = 0;    // tokens
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t key_bytes = 0;  // a head in a block, its scales included
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
  std::int64_t num_heads = 0;
};

// A warp for each head of K, then for each of V. Grid: x rows, y vectors / 4.
template <KvType kType>
struct StoreKv {
  using Args = StoreKvArgs;
  static constexpr int kThreads = 128;
  static constexpr int kVectors = kThreads / kWarpLanes;  // per block
  static constexpr int kSharedBytes = 0;
  static constexpr int kSweep = kFour * kWarpLanes;
  static constexpr int kBytes = kv_element_bytes(kType);

  struct alignas(kFour* kBytes) Stored {
    std::byte of[kFour * kBytes];
  };

  // The scale of an int8 vector.
  template <class Thread>
  static QUIRE_DEVICE float scale_of(Thread& t, const float* vector, int count, bool at_once) {
    float bound = 0.0f;
    for (int at = kFour * t.lane(); at < count; at += kSweep) {
      const Four values = load_four(vector, at, count, at_once);
      for (const float value : values.of) {
        const float magnitude = value < 0.0f ? -value : value;
        bound = bound > magnitude ? bound : magnitude;
      }
    }
    bound = warp_largest(t, bound);
    return bound > 1e-30f ? bound / 127.0f : 0.0f;
  }

  template <class Thread>
  static QUIRE_DEVICE auto stored(Thread& t, float value, float inverse) {
    if constexpr (kType == KvType::kF32) {
      return value;
    } else if constexpr (kType == KvType::kF16) {
      return t.float_to_half(value);
    } else if constexpr (kType == KvType::kBF16) {
      return bf16_of(value);
    } else {
      const float scaled = value * inverse;
      const float above = scaled > -127.0f ? scaled : -127.0f;  // a NaN becomes -127
      return static_cast<std::int8_t>(round_even(above < 127.0f ? above : 127.0f));
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void store(Thread& t, const float* vector, int count, std::byte* to, float* scale_to) {
    const bool at_once = lies_in_fours(vector, count);
    const bool stores_at_once = count % kFour == 0 && reinterpret_cast<std::uintptr_t>(to) % sizeof(Stored) == 0;
    float inverse = 0.0f;
    if constexpr (kType == KvType::kI8) {
      const float scale = scale_of(t, vector, count, at_once);
      inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
      if (t.lane() == 0) *scale_to = scale;
    }
    for (int at = kFour * t.lane(); at < count; at += kSweep) {
      const Four values = load_four(vector, at, count, at_once);
      Stored all;
      QUIRE_UNROLL
      for (int i = 0; i < kFour; ++i) {
        const auto value = stored(t, values.of[i], inverse);
        __builtin_memcpy(all.of + i * kBytes, &value, kBytes);
        if (!stores_at_once && at + i < count) __builtin_memcpy(to + (at + i) * kBytes, &value, kBytes);
      }
      if (stores_at_once) *reinterpret_cast<Stored*>(to + at * kBytes) = all;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const KvLayerView& kv = args.kv;
    const std::int64_t row = t.block_x();
    const std::int64_t number = t.block_y() * kVectors + t.warp();
    const bool is_key = number < args.num_heads;
    const std::int64_t head = is_key ? number : number - args.num_heads;
    const std::int64_t dim = is_key ? kv.key_dim : kv.value_dim;
    if (head >= args.num_heads || dim == 0) return;  // the whole warp
    const auto slot = static_cast<unsigned>(args.slots[row]);
    const auto block_size = static_cast<unsigned>(kv.block_size);
    const unsigned block = slot / block_size;
    const unsigned token = slot - block * block_size;
    std::byte* vectors =
        kv.base + block * kv.block_stride + (is_key ? head * kv.key_bytes : kv.value_offset + head * kv.value_bytes);
    const float* from = is_key ? args.k + row * args.k_stride : args.v + row * args.v_stride;
    store(t, from + head * dim, static_cast<int>(dim), vectors + token * dim * kBytes,
          reinterpret_cast<float*>(vectors + kv.block_size * dim) + token);
  }
};

}  // namespace quire::gpu
