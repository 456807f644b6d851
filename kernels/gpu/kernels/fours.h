// Rows of f32 read and written by fours: 16 bytes at once where all rows of an operation allow it, else each value on
// its own. Values behind a row's end are zeros, and are not written. A kernel loads all that it needs before it writes,
// since a store holds up the loads behind it.
#pragma once

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

inline constexpr int kFour = 4;

// Features of a row for each block of kernels that spread rows over blocks of 128 threads. Grid: x rows, y pieces.
inline constexpr int kSpreadThreads = 128;
inline constexpr int kSpreadPiece = kFour * kSpreadThreads;
constexpr std::int64_t spread_pieces(std::int64_t cols) {
  return (cols + kSpreadPiece - 1) / kSpreadPiece;
}

struct alignas(16) Four {
  float of[kFour];
};

// Returns whether a row's fours are aligned to 16 bytes and the last one is whole.
QUIRE_DEVICE bool lies_in_fours(const float* row, int count) {
  return (reinterpret_cast<std::uintptr_t>(row) | (4u * static_cast<unsigned>(count))) % sizeof(Four) == 0;
}

QUIRE_DEVICE Four load_four(const float* row, int at, int count, bool at_once) {
  if (at >= count) return {};
  if (at_once) return *reinterpret_cast<const Four*>(row + at);
  Four out{};
  QUIRE_UNROLL
  for (int i = 0; i < kFour; ++i) {
    if (at + i < count) out.of[i] = row[at + i];
  }
  return out;
}

QUIRE_DEVICE void store_four(float* row, int at, int count, bool at_once, const Four& values) {
  if (at >= count) return;
  if (at_once) {
    *reinterpret_cast<Four*>(row + at) = values;
    return;
  }
  QUIRE_UNROLL
  for (int i = 0; i < kFour; ++i) {
    if (at + i < count) row[at + i] = values.of[i];
  }
}

}  // namespace quire::gpu
