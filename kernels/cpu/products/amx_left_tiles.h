// The tiles of amx_tiles.h with sides changed: weights are the left factor, [column][feature], activations the right
// one, [pair of features][row][2], and sums are [column][row]. Each output is the same chain of the same products.
// Hardware and emulation, with the functions of amx_tiles.h; one thread at a time. Internal linkage; included by level
// files only.
#pragma once

#include "kernels/cpu/products/amx_tiles.h"

namespace quire {
namespace {

#ifdef __AMX_BF16__

class HardwareLeftTiles : public HardwareTiles {
 public:
  static constexpr bool kWeightsLeft = true;

  void configure(int first, int second) {
    stride_[0] = 4 * first;
    stride_[1] = 4 * (second > 0 ? second : 1);  // never used without rows, but an empty tile would be a fault
    TileConfig config;
    config.column_bytes[0] = config.column_bytes[1] = config.column_bytes[4] = static_cast<std::uint16_t>(stride_[0]);
    config.column_bytes[2] = config.column_bytes[3] = config.column_bytes[5] = static_cast<std::uint16_t>(stride_[1]);
    load_tile_config(config);
  }
  template <int kHalf>
  void load_rows(const std::uint16_t* from) {
    complete_stores();
    if constexpr (kHalf == 0) _tile_loadd(4, from, stride_[0]);
    if constexpr (kHalf == 1) _tile_loadd(5, from, stride_[1]);
  }
  template <int kHalf, int kPanel>
  void multiply() {
    if constexpr (kHalf == 0 && kPanel == 0) _tile_dpbf16ps(0, 6, 4);
    if constexpr (kHalf == 0 && kPanel == 1) _tile_dpbf16ps(1, 7, 4);
    if constexpr (kHalf == 1 && kPanel == 0) _tile_dpbf16ps(2, 6, 5);
    if constexpr (kHalf == 1 && kPanel == 1) _tile_dpbf16ps(3, 7, 5);
  }

 private:
  std::int64_t stride_[2];
};

#endif

class EmulatedLeftTiles : public EmulatedTiles {
 public:
  static constexpr bool kWeightsLeft = true;

  template <int kHalf>
  void load_rows(const std::uint16_t* from) {
    std::uint16_t rows[kTileRows * kTileDepth];
    for (int row = 0; row < rows_[kHalf]; ++row) {
      for (int k = 0; k < kTileDepth; ++k)
        rows[row * kTileDepth + k] = from[(k / 2 * rows_[kHalf] + row) * 2 + k % 2];
    }
    EmulatedTiles::load_rows<kHalf>(rows);
  }
  template <int kPanel>
  void load_weights(const std::byte* from) {
    std::uint16_t columns[kTileRows * kTileDepth];
    std::uint16_t pairs[kTileRows * kTileDepth];
    __builtin_memcpy(columns, from, sizeof columns);
    for (int column = 0; column < kTileRows; ++column) {
      for (int k = 0; k < kTileDepth; ++k)
        pairs[(k / 2 * kTileRows + column) * 2 + k % 2] = columns[column * kTileDepth + k];
    }
    EmulatedTiles::load_weights<kPanel>(reinterpret_cast<const std::byte*>(pairs));
  }
  template <int kHalf, int kPanel>
  void load_sums(const float* from, std::int64_t stride) {
    float sums[kTileRows * kTileRows];
    for (int row = 0; row < rows_[kHalf]; ++row) {
      for (int column = 0; column < kTileRows; ++column)
        sums[row * kTileRows + column] = from[column * stride / 4 + row];
    }
    EmulatedTiles::load_sums<kHalf, kPanel>(sums);
  }
  template <int kHalf, int kPanel>
  void store(float* out, std::int64_t stride = 64) {
    float sums[kTileRows * kTileRows];
    EmulatedTiles::store<kHalf, kPanel>(sums);
    for (int row = 0; row < rows_[kHalf]; ++row) {
      for (int column = 0; column < kTileRows; ++column)
        out[column * stride / 4 + row] = sums[row * kTileRows + column];
    }
  }
};

}  // namespace
}  // namespace quire
