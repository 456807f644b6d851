// Operations on rows of f32: RMSNorm of rows and of heads, rows made for products that multiply f32, RoPE, gathering.
// Invariant: the order of a row's sums depends on its length alone; rows are made as norm_quantise makes them.
#pragma once

#include "kernels/gpu/kernels/norm_quantise.h"

namespace quire::gpu {

struct RowsArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t cols = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
  const std::int32_t* order = nullptr;  // index of the value at each place of a made row; null: its own
  float* out = nullptr;
  std::int64_t out_stride = 0;
  ExpertRows experts = {};  // rows by place
};

// A block computes a row. x and out may be the same.
template <RowForm kForm>
struct MakeRows {
  using Args = RowsArgs;
  static constexpr int kThreads = kMadeThreads;
  static constexpr int kSharedBytes = kForm == RowForm::kNormed ? 8 * sizeof(float) : 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = t.block_x();
    const NormQuantiseArgs made_by{.x = args.x + args.experts.source(row) * args.x_stride,
                                   .stride = args.x_stride,
                                   .depth = args.cols,
                                   .norm_weight = args.weight,
                                   .eps = args.eps,
                                   .order = args.experts.order(row, args.order)};
    MadeRow<kForm> made(made_by, made_by.x, made_by.order);
    if constexpr (kForm == RowForm::kNormed)
      made.factor = norm_factor(t, made_by, made.x, reinterpret_cast<float*>(t.shared()));
    float* out = args.out + row * args.out_stride;
    const bool at_once = lies_in_fours(out, made.depth);
    for (int at = kFour * t.index(); at < made.depth; at += kMadeSweep)
      store_four(out, at, made.depth, at_once, made.make(at));
  }
};

struct HeadNormArgs {
  float* x = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
};

// Works in place, a warp for each head of each row. Sums have the order of rms_norm's warps of 128 features each.
struct HeadNorm {
  using Args = HeadNormArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE float sum_of_squares(Thread& t, const float* x, std::int64_t base, std::int64_t count) {
    const std::int64_t mine = base + 4 * t.lane();
    float sum = 0.0f;
    for (std::int64_t i = mine; i < mine + 4 && i < count; ++i)
      sum = __builtin_fmaf(x[i], x[i], sum);
    for (int distance = 16; distance > 0; distance /= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    return sum;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const auto number = static_cast<unsigned>(t.block_x()) * (kThreads / kWarpLanes) + static_cast<unsigned>(t.warp());
    if (number >= args.rows * args.num_heads) return;  // the whole warp
    const auto heads = static_cast<unsigned>(args.num_heads);
    float* x = args.x + number / heads * args.stride + number % heads * args.head_dim;
    float sum = 0.0f;
    for (std::int64_t base = 0; base < args.head_dim; base += 4 * kWarpLanes)
      sum = sum + sum_of_squares(t, x, base, args.head_dim);
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(args.head_dim) + args.eps);
    for (std::int64_t i = t.lane(); i < args.head_dim; i += kWarpLanes)
      x[i] = x[i] * factor * args.weight[i];
  }
};

struct RopeArgs {
  float* x = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t cos_stride = 0;
  std::int64_t sin_stride = 0;
  std::int64_t half = 0;  // pairs of a head
  bool interleaved = false;
};

// A warp for each head of each row. Grid: x rows, y heads / 4.
struct Rope {
  using Args = RopeArgs;
  static constexpr int kThreads = 128;
  static constexpr int kHeads = kThreads / kWarpLanes;  // per block
  static constexpr int kSharedBytes = 0;
  static constexpr int kPairs = 2;  // pairs that a lane loads before it writes

  struct Pair {
    float* a;
    float* b;
    float x, y;
    float c, s;
  };

  static QUIRE_DEVICE Pair load(const Args& args, std::int64_t row, float* head, int pair) {
    const auto half = static_cast<int>(args.half);
    float* a = head + (args.interleaved ? 2 * pair : pair);
    float* b = head + (args.interleaved ? 2 * pair + 1 : pair + half);
    return {a, b, *a, *b, args.cos[row * args.cos_stride + pair], args.sin[row * args.sin_stride + pair]};
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = t.block_x();
    const std::int64_t number = t.block_y() * kHeads + t.warp();
    if (number >= args.num_heads) return;  // the whole warp
    float* head = args.x + row * args.stride + number * args.head_dim;
    const auto half = static_cast<int>(args.half);
    for (int first = t.lane(); first < half; first += kPairs * kWarpLanes) {
      Pair pairs[kPairs];
      QUIRE_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        if (first + i * kWarpLanes < half) pairs[i] = load(args, row, head, first + i * kWarpLanes);
      }
      QUIRE_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        if (first + i * kWarpLanes >= half) break;
        const Pair& p = pairs[i];
        *p.a = __builtin_fmaf(-p.y, p.s, p.x * p.c);
        *p.b = __builtin_fmaf(p.x, p.s, p.y * p.c);
      }
    }
  }
};

struct GatherArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int32_t* rows = nullptr;  // null: all in their order
  std::int64_t cols = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// Grid: x rows, y spread_pieces(cols).
struct Gather {
  using Args = GatherArgs;
  static constexpr int kThreads = kSpreadThreads;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = args.rows == nullptr ? t.block_x() : args.rows[t.block_x()];
    const float* from = args.x + row * args.x_stride;
    float* to = args.out + t.block_x() * args.out_stride;
    const auto cols = static_cast<int>(args.cols);
    const bool at_once = lies_in_fours(from, cols) && lies_in_fours(to, cols);
    const int at = static_cast<int>(t.block_y()) * kSpreadPiece + kFour * t.index();
    store_four(to, at, cols, at_once, load_four(from, at, cols, at_once));
  }
};

struct CopyBytesArgs {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t bytes = 0;  // a multiple of 16, as both addresses are
};

// Sixteen bytes a thread.
struct CopyBytes {
  using Args = CopyBytesArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t at = 16 * (t.block_x() * kThreads + t.index());
    if (at < args.bytes) *reinterpret_cast<Words4*>(args.to + at) = load_as<Words4>(args.from + at);
  }
};

}  // namespace quire::gpu
