// Weighted sums of a row's experts' results, in the order of the choice, as on the CPU levels.
#pragma once

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

struct CombineArgs {
  const float* results = nullptr;  // rows ordered by expert
  std::int64_t results_stride = 0;
  const std::int32_t* places = nullptr;  // [rows * each] which of them a choice has
  const float* weights = nullptr;        // [rows * each]; null: each is 1
  std::int64_t each = 0;                 // choices of a row
  std::int64_t cols = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// A block computes a row.
struct CombineChoices {
  using Args = CombineArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t first = t.block_x() * args.each;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads) {
      const auto weight = [&](std::int64_t choice) { return args.weights == nullptr ? 1.0f : args.weights[choice]; };
      float sum = args.results[args.places[first] * args.results_stride + i] * weight(first);
      for (std::int64_t j = first + 1; j < first + args.each; ++j)
        sum = __builtin_fmaf(args.results[args.places[j] * args.results_stride + i], weight(j), sum);
      args.out[t.block_x() * args.out_stride + i] = sum;
    }
  }
};

}  // namespace quire::gpu
