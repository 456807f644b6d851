// The sum of what several devices made of a product, in the order of their ranks: on each of them the same.
#pragma once

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

inline constexpr int kMostShares = 8;

struct SumRanksArgs {
  const float* shares[kMostShares] = {};  // dense; the first num_ranks are set
  int num_ranks = 0;
  std::int64_t cols = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  bool accumulate = false;
};

// A block computes a row. The shares are added first, then their sum to what `out` holds.
struct SumRanks {
  using Args = SumRanksArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t first = t.block_x() * args.cols;
    float* out = args.out + t.block_x() * args.out_stride;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads) {
      float sum = args.shares[0][first + i];
      QUIRE_UNROLL
      for (int rank = 1; rank < kMostShares; ++rank) {
        if (rank < args.num_ranks) sum = sum + args.shares[rank][first + i];
      }
      out[i] = args.accumulate ? out[i] + sum : sum;
    }
  }
};

}  // namespace quire::gpu
