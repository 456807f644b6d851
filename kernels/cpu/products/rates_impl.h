// Loops of a single kind of arithmetic, or of reading alone: the machine's limits. Any thread. Included by an ISA
// level's file behind its Simd wrapper; everything here has internal linkage.
#pragma once

#include "kernels/cpu/kernel_table.h"

#ifdef __AMX_BF16__
#include "kernels/cpu/products/tile_state.h"
#endif

namespace quire {
namespace {

constexpr int kRateChains = 12;  // independent sums: more than latency times throughput of any multiply-add
constexpr int kRateUnroll = 8;   // steps of each chain in one iteration

// Hides a value from the optimizer, which then neither folds nor drops it.
template <class V>
[[gnu::always_inline]] inline void opaque(V& value) {
  asm volatile("" : "+m"(value));
}

template <class V, class Step>
[[gnu::always_inline]] inline void chains(std::int64_t rounds, V a, V b, const Step& step) {
  V sums[kRateChains];
  for (V& sum : sums)
    sum = a;
  for (std::int64_t round = 0; round < rounds; ++round) {
    opaque(a);
    for (int i = 0; i < kRateUnroll; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < kRateChains; ++c)
        sums[c] = step(sums[c], a, b);
    }
  }
  for (V& sum : sums)
    opaque(sum);
}

void fp32_rate(std::int64_t rounds) {
  using F = Simd::Columns::F;
  chains(rounds, Simd::Columns::set1(1e-9f), Simd::Columns::set1(1.0f),
         [](F sum, F a, F b) { return Simd::Columns::fma(a, b, sum); });
}

#if defined(__AVX512VNNI__)
void int8_rate(std::int64_t rounds) {
  chains(rounds, _mm512_set1_epi8(1), _mm512_set1_epi8(1),
         [](__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); });
}
constexpr int kInt8Bytes = 64;
#elif defined(__AVXVNNI__)
void int8_rate(std::int64_t rounds) {
  chains(rounds, _mm256_set1_epi8(1), _mm256_set1_epi8(1),
         [](__m256i sum, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(sum, a, b); });
}
constexpr int kInt8Bytes = 32;
#elif defined(__AVX2__)
void int8_rate(std::int64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1);
  chains(rounds, _mm256_set1_epi8(1), _mm256_set1_epi8(1), [&](__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_xor_si256(a, sum), b), ones));
  });
}
constexpr int kInt8Bytes = 32;
#endif

#ifdef __ARM_NEON
// The scalar level has none, because it has no integer products of its own.
template <class C>
constexpr RateLoop int8_loop(double steps) {
  if constexpr (requires { C::kRateBytes; }) {
    return {steps * C::kRateBytes, [](std::int64_t rounds) {
              chains(rounds, C::bytes_of(1), C::bytes_of(1),
                     [](auto sum, auto a, auto b) { return C::multiply_bytes(sum, a, b); });
            }};
  }
  return {};
}
#endif

#ifdef __AVX512BF16__
void bf16_rate(std::int64_t rounds) {
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  chains(rounds, _mm512_set1_ps(1e-9f), _mm512_castsi512_ps(ones), [](__m512 sum, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  });
}
#endif

#ifdef __AMX_BF16__
constexpr int kTileSteps = 32;  // products in one iteration
constexpr double kTileProducts = kTileSteps * 16.0 * 16.0;

void set_up_tiles() {
  load_tile_config(TileConfig{});
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

// Operands stay in their tiles: the unit itself, whatever feeds it.
void tile_bf16_rate(std::int64_t rounds) {
  set_up_tiles();
  for (std::int64_t i = 0; i < rounds * kTileSteps / 4; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

void tile_int8_rate(std::int64_t rounds) {
  set_up_tiles();
  for (std::int64_t i = 0; i < rounds * kTileSteps / 4; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
}
#endif

void read_all(const std::byte* from, std::size_t bytes) {
  using F = typename Simd::F;
  constexpr std::size_t kStep = 8;
  const auto* at = reinterpret_cast<const float*>(from);
  const std::size_t count = bytes / sizeof(float);
  F sums[kStep];
  for (F& sum : sums)
    sum = Simd::zero();
  for (std::size_t i = 0; i + kStep * Simd::kLanes <= count; i += kStep * Simd::kLanes) {
#pragma GCC unroll 8
    for (std::size_t s = 0; s < kStep; ++s)
      sums[s] = Simd::max(sums[s], Simd::load(at + i + s * Simd::kLanes));
  }
  for (F& sum : sums)
    opaque(sum);
}

// Unused places have no name.
constexpr RateTable rate_table() {
  constexpr double kSteps = 2.0 * kRateChains * kRateUnroll;
  RateTable table{};
  table.read = read_all;
  table.fp32 = {kSteps * Simd::Columns::kLanes, fp32_rate};
#ifdef __AVX2__
  table.int8 = {kSteps * kInt8Bytes, int8_rate};
#endif
#ifdef __ARM_NEON
  table.int8 = int8_loop<Simd::Columns>(kSteps);
#endif
#ifdef __AVX512BF16__
  table.bf16 = {kSteps * 32, bf16_rate};
#endif
#ifdef __AMX_BF16__
  table.tile_bf16 = {kTileProducts * 2.0 * 32, tile_bf16_rate};
  table.tile_int8 = {kTileProducts * 2.0 * 64, tile_int8_rate};
#endif
  return table;
}

}  // namespace
}  // namespace quire
