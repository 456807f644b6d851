// Residual streams, side by side in a row, and rows by their lengths and deviations. Formulas as on the CPU levels, but
// that sums of a row are made in f32 here.
// Invariant: the order of a row's sums depends on its length alone.
#pragma once

#include "kernels/gpu/kernels/graph_rows.h"

namespace quire::gpu {

struct StreamArgs {
  const float* factors = nullptr;
  std::int64_t factors_stride = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t num_streams = 0;
  std::int64_t width = 0;  // per stream
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// A block computes a row: out[i] = x[i] + the sum over k of factors[i][k] * x[k].
struct MixStreams {
  using Args = StreamArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const float* x = args.x + t.block_x() * args.x_stride;
    float* out = args.out + t.block_x() * args.out_stride;
    const std::int64_t count = args.num_streams;
    for (std::int64_t i = 0; i < count; ++i) {
      const float* factors = args.factors + t.block_x() * args.factors_stride + i * count;
      for (std::int64_t at = t.index(); at < args.width; at += kThreads) {
        float sum = x[i * args.width + at];
        for (std::int64_t k = 0; k < count; ++k)
          sum = __builtin_fmaf(x[k * args.width + at], factors[k], sum);
        out[i * args.width + at] = sum;
      }
    }
  }
};

// A block computes a row: out[i] += (1 + factors[i]) * x.
struct AddToStreams {
  using Args = StreamArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const float* x = args.x + t.block_x() * args.x_stride;
    for (std::int64_t i = 0; i < args.num_streams; ++i) {
      const float factor = 1.0f + args.factors[t.block_x() * args.factors_stride + i];
      float* out = args.out + t.block_x() * args.out_stride + i * args.width;
      for (std::int64_t at = t.index(); at < args.width; at += kThreads)
        out[at] = __builtin_fmaf(x[at], factor, out[at]);
    }
  }
};

struct RowSumsArgs {
  const float* like = nullptr;  // match_length
  std::int64_t like_stride = 0;
  std::int64_t like_cols = 0;
  float deviations = 0.0f;  // keep_excess
  bool of_sample = false;
  float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t cols = 0;
};

// Computed by a block of 256 threads.
template <class Thread>
QUIRE_DEVICE float sum_of_squares(Thread& t, const float* x, std::int64_t count, float mean, float* room) {
  float sum = 0.0f;
  for (std::int64_t i = t.index(); i < count; i += 256)
    sum = __builtin_fmaf(x[i] - mean, x[i] - mean, sum);
  return block_sum(t, sum, room);
}

// A block computes a row: x *= |like| / |x|; a row of zeros stays.
struct MatchLength {
  using Args = RowSumsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 16 * static_cast<int>(sizeof(float));

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto* sums = reinterpret_cast<float*>(t.shared());
    float* x = args.x + t.block_x() * args.x_stride;
    const float own = sum_of_squares(t, x, args.cols, 0.0f, sums);
    const float* like = args.like + t.block_x() * args.like_stride;
    const float other = sum_of_squares(t, like, args.like_cols, 0.0f, sums + 8);
    if (own == 0.0f) return;
    const float factor = __builtin_sqrtf(other / own);
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      x[i] = x[i] * factor;
  }
};

// A block computes a row: the excess over the mean plus `deviations` deviations; zero elsewhere.
struct KeepExcess {
  using Args = RowSumsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 16 * static_cast<int>(sizeof(float));

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto* sums = reinterpret_cast<float*>(t.shared());
    float* x = args.x + t.block_x() * args.x_stride;
    float sum = 0.0f;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      sum = sum + x[i];
    const float mean = block_sum(t, sum, sums) / static_cast<float>(args.cols);
    const float squares = sum_of_squares(t, x, args.cols, mean, sums + 8);
    const std::int64_t degrees = args.of_sample && args.cols > 1 ? args.cols - 1 : args.cols;
    const float deviation = __builtin_sqrtf(squares / static_cast<float>(degrees));
    const float cutoff = __builtin_fmaf(args.deviations, deviation, mean);
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      x[i] = greatest(x[i] - cutoff, 0.0f);
  }
};

}  // namespace quire::gpu
