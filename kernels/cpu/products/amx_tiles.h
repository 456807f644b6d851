// The eight AMX tiles of one thread as one 32 x 32 block of products: accumulators (row half, panel), two A tiles of
// activations, two B tiles of weights. Two implementations with the same results, hardware and emulation. One thread at
// a time. Source: Intel SDM, TDPBF16PS: bf16 pairs, f32 sums with round-half-even, denormals read and written as zero.
// Internal linkage; included by level files only.
#pragma once

#ifdef __AMX_BF16__
#include "kernels/cpu/products/tile_state.h"
#endif

#include <cstddef>

#include "kernels/formats/half.h"

namespace quire {
namespace {

constexpr int kTileRows = 16;   // rows of activations, or columns of weights, per tile
constexpr int kTileDepth = 32;  // bf16 values per tile row
constexpr int kTileBytes = 1024;

#ifdef __AMX_BF16__

// Strides are bytes from one row of a tile to the next.
class HardwareTiles {
 public:
  // first, second: rows in use of the two halves, 0 to 16.
  void configure(int first, int second) {
    TileConfig config;
    // A half without rows is never used, but a tile of none would be a fault.
    config.rows[0] = config.rows[1] = config.rows[4] = static_cast<std::uint8_t>(first);
    config.rows[2] = config.rows[3] = config.rows[5] = static_cast<std::uint8_t>(second > 0 ? second : 1);
    load_tile_config(config);
  }
  void release() { _tile_release(); }
  void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  template <int kHalf>
  void load_rows(const void* from, std::int64_t stride = 64) {
    complete_stores();
    if constexpr (kHalf == 0) _tile_loadd(4, from, stride);
    if constexpr (kHalf == 1) _tile_loadd(5, from, stride);
  }
  template <int kPanel>
  void load_weights(const std::byte* from) {
    complete_stores();
    if constexpr (kPanel == 0) _tile_loadd(6, from, 64);
    if constexpr (kPanel == 1) _tile_loadd(7, from, 64);
  }
  template <int kHalf, int kPanel>
  void multiply() {
    if constexpr (kHalf == 0 && kPanel == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kHalf == 0 && kPanel == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kHalf == 1 && kPanel == 0) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kHalf == 1 && kPanel == 1) _tile_dpbf16ps(3, 5, 7);
  }
  template <int kHalf, int kPanel>
  void load_sums(const float* from, std::int64_t stride = 64) {
    complete_stores();
    if constexpr (kHalf == 0 && kPanel == 0) _tile_loadd(0, from, stride);
    if constexpr (kHalf == 0 && kPanel == 1) _tile_loadd(1, from, stride);
    if constexpr (kHalf == 1 && kPanel == 0) _tile_loadd(2, from, stride);
    if constexpr (kHalf == 1 && kPanel == 1) _tile_loadd(3, from, stride);
  }
  template <int kHalf, int kPanel>
  void store(float* out, std::int64_t stride = 64) {
    if constexpr (kHalf == 0 && kPanel == 0) _tile_stored(0, out, stride);
    if constexpr (kHalf == 0 && kPanel == 1) _tile_stored(1, out, stride);
    if constexpr (kHalf == 1 && kPanel == 0) _tile_stored(2, out, stride);
    if constexpr (kHalf == 1 && kPanel == 1) _tile_stored(3, out, stride);
  }
};

#endif

// Lets the AMX kernels run, and be tested, on any machine.
class EmulatedTiles {
 public:
  void configure(int first, int second) {
    rows_[0] = first;
    rows_[1] = second;
  }
  void release() {}
  void clear() { __builtin_memset(sums_, 0, sizeof sums_); }
  template <int kHalf>
  void load_rows(const void* from, std::int64_t stride = 64) {
    for (int row = 0; row < rows_[kHalf]; ++row)
      widen(static_cast<const char*>(from) + row * stride, kTileDepth, left_[kHalf] + row * kTileDepth);
  }
  template <int kPanel>
  void load_weights(const std::byte* from) {
    widen(from, kTileRows * kTileDepth, right_[kPanel]);
  }
  template <int kHalf, int kPanel>
  void multiply() {
    for (int m = 0; m < rows_[kHalf]; ++m) {
      float products[2 * kTileRows] = {};  // even and odd elements of pairs have separate sums
      for (int k = 0; k < kTileDepth / 2; ++k) {
        for (int n = 0; n < 2 * kTileRows; ++n) {
          const float a = left_[kHalf][m * kTileDepth + 2 * k + n % 2];
          const float b = right_[kPanel][k * 2 * kTileRows + n];
          products[n] = flush(__builtin_fmaf(a, b, products[n]));
        }
      }
      for (int n = 0; n < kTileRows; ++n) {
        float& sum = sums_[2 * kHalf + kPanel][m * kTileRows + n];
        sum = flush(sum + flush(products[2 * n] + products[2 * n + 1]));
      }
    }
  }
  template <int kHalf, int kPanel>
  void load_sums(const float* from, std::int64_t stride = 64) {
    copy(from, stride, sums_[2 * kHalf + kPanel], 64, rows_[kHalf]);
  }
  template <int kHalf, int kPanel>
  void store(float* out, std::int64_t stride = 64) {
    copy(sums_[2 * kHalf + kPanel], 64, out, stride, rows_[kHalf]);
  }

 protected:
  int rows_[2] = {0, 0};

 private:
  static float flush(float x) {
    return (float_to_bits(x) & 0x7f800000u) == 0 ? bits_to_float(float_to_bits(x) & 0x80000000u) : x;
  }
  static void copy(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride, int rows) {
    for (int row = 0; row < rows; ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * to_stride, static_cast<const char*>(from) + row * from_stride,
                       64);
  }
  static void widen(const void* from, int count, float* to) {
    for (int i = 0; i < count; ++i) {
      std::uint16_t bits;
      __builtin_memcpy(&bits, static_cast<const char*>(from) + 2 * i, sizeof bits);
      to[i] = flush(bf16_to_float(bits));
    }
  }

  float sums_[4][kTileRows * kTileRows];
  float left_[2][kTileRows * kTileDepth];
  float right_[2][kTileRows * kTileDepth];
};

}  // namespace
}  // namespace quire
