// linear_f32: weights of float types, as the file's rows, times f32 activations: one fused multiply-add per feature in
// order, as on the CPU level avx512. A block has 64 outputs and 64 rows, 256 threads of four by four elements; depth
// goes through shared memory 16 features at a time. Grid: x outputs / 64, y rows / 64, or items of experts, each of at
// most 64 rows. Invariant: an element is one chain over the depth, independent of the rows beside it.
#pragma once

#include "kernels/gpu/kernels/embed.h"
#include "kernels/gpu/kernels/linear_int.h"

namespace quire::gpu {

struct LinearFloatArgs {
  const std::byte* weights = nullptr;  // rows as the file has them
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t depth = 0;
  LinearOutput output;
  ExpertProduct experts = {};  // weights and bias are the first one's
};

template <DType kType>
struct LinearFloat {
  using Args = LinearFloatArgs;
  static constexpr int kThreads = 256;
  static constexpr int kTile = 64;
  static constexpr int kDepth = 16;
  static constexpr int kEach = 4;            // outputs and rows of a thread
  static constexpr int kStride = kTile + 4;  // floats from one feature to the next
  static constexpr int kSharedBytes = 2 * kDepth * kStride * static_cast<int>(sizeof(float));

  // Features [depth, depth + 16) of 64 outputs and 64 rows, zeros beyond the matrix.
  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Args& args, std::int64_t first_row, std::int64_t depth,
                                 float* weights, float* x) {
    const std::int64_t row_bytes = EmbedRows<kType>::row_bytes(args.depth);
    // A warp stores eight features of four rows at once, each to a bank of its own.
    for (int i = t.index(); i < kTile * kDepth; i += kThreads) {
      const int feature = i % 8 + 8 * (i / (8 * kTile));
      const int place = i / 8 % kTile;
      const std::int64_t k = depth + feature;
      const std::int64_t output = t.block_x() * kTile + place;
      const std::int64_t row = first_row + place;
      float weight = 0.0f;
      float value = 0.0f;
      if (k < args.depth && output < args.output.outputs)
        weight = EmbedRows<kType>::value(t, args.weights + output * row_bytes, k);
      if (k < args.depth && row < args.output.rows) value = args.x[row * args.x_stride + k];
      weights[feature * kStride + place] = weight;
      x[feature * kStride + place] = value;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    Args own = args;
    std::int64_t first_row = static_cast<std::int64_t>(t.block_y()) * kTile;
    if (args.experts.items != nullptr) {
      const ExpertItem item = args.experts.items[t.block_y()];
      if (item.rows == 0) return;
      own.weights += args.experts.weights[item.expert].weights;
      own.x += item.first_row * args.x_stride;
      own.output.narrow_to(item, args.experts.weights[item.expert]);
      first_row = 0;
    }
    multiply(t, own, first_row);
  }

  template <class Thread>
  static QUIRE_DEVICE void multiply(Thread& t, const Args& args, std::int64_t first_row) {
    auto* weights = reinterpret_cast<float*>(t.shared());
    float* x = weights + kDepth * kStride;
    const int output = t.index() % 16 * kEach;  // index among the block's outputs
    const int row = t.index() / 16 * kEach;
    const bool is_used = t.block_x() * kTile + output < args.output.outputs && first_row + row < args.output.rows;
    float acc[kEach][kEach] = {};
    for (std::int64_t depth = 0; depth < args.depth; depth += kDepth) {
      if (depth > 0) t.sync_block();  // the features before have been read
      fetch(t, args, first_row, depth, weights, x);
      t.sync_block();
      const int left = static_cast<int>(args.depth - depth < kDepth ? args.depth - depth : kDepth);
      for (int k = 0; k < left && is_used; ++k) {
        QUIRE_UNROLL
        for (int i = 0; i < kEach * kEach; ++i) {
          float& sum = acc[i / kEach][i % kEach];
          sum = __builtin_fmaf(weights[k * kStride + output + i % kEach], x[k * kStride + row + i / kEach], sum);
        }
      }
    }
    QUIRE_UNROLL
    for (int i = 0; i < kEach * kEach; ++i) {
      write_element(args.output, first_row + row + i / kEach, t.block_x() * kTile + output + i % kEach,
                    acc[i / kEach][i % kEach]);
    }
  }
};

}  // namespace quire::gpu
