// The configuration of the AMX tiles, and two facts that GCC's intrinsics do not state: ldtilecfg reads all 64 bytes,
// and a tile load reads memory. Otherwise the compiler drops stores for the one and delays stores for the other. One
// thread at a time. Source: Intel SDM, LDTILECFG. Internal linkage; included by level files with AMX only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace quire {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

[[gnu::always_inline]] inline void load_tile_config(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config));
}

// Completes earlier stores to memory before a tile load.
[[gnu::always_inline]] inline void complete_stores() {
  asm volatile("" : : : "memory");
}

}  // namespace
}  // namespace quire
