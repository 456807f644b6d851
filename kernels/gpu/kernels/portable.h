// Device code for two compilers: nvcc for devices, g++ for the emulator. Kernels are templates over `Thread`, one
// thread of a block with its operations (cuda/cuda_thread.h, emulated/emulated_thread.h), so that below kernels/gpu/
// only this file depends on the compiler. Invariant: arithmetic in f32 is spelt out (no contraction, fma if meant), so
// that both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define QUIRE_DEVICE __device__ __forceinline__
#define QUIRE_UNROLL _Pragma("unroll")
#define QUIRE_ROLLED _Pragma("unroll 1")
#else
#define QUIRE_DEVICE inline
#define QUIRE_UNROLL
#define QUIRE_ROLLED
#endif

namespace quire::gpu {

// Sixteen bytes, which a thread loads at once.
struct alignas(16) Words4 {
  std::uint32_t of[4];
};

struct alignas(8) Words2 {
  std::uint32_t of[2];
};

inline constexpr int kWarpLanes = 32;

// Maximum of a warp's values, in all lanes.
template <class Thread>
QUIRE_DEVICE float warp_largest(Thread& t, float value) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    const float other = t.shuffle_xor(value, distance);
    value = value > other ? value : other;
  }
  return value;
}

QUIRE_DEVICE float float_of_bits(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

QUIRE_DEVICE std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class T>
QUIRE_DEVICE T load_as(const std::byte* from) {
  return *reinterpret_cast<const T*>(from);
}

}  // namespace quire::gpu
