// GraphOps on rows: nonlinearities, sums, factors, caps and layer norms. The formulas and the order of operations of an
// element are those of the CPU levels with fused multiply-add; only a layer norm sums in an order of its own.
// Invariant: the order of a row's sums depends on its length alone.
#pragma once

#include "kernels/activation.h"
#include "kernels/gpu/kernels/norm_quantise.h"

namespace quire::gpu {

QUIRE_DEVICE float least(float a, float b) {
  return a < b ? a : b;
}
QUIRE_DEVICE float greatest(float a, float b) {
  return a > b ? a : b;
}
QUIRE_DEVICE float within(float x, float bound) {
  return least(greatest(x, -bound), bound);
}

QUIRE_DEVICE float sigmoid_of(float x) {
  return 1.0f / (1.0f + exp_of(0.0f - x));
}

QUIRE_DEVICE float tanh_of(float x) {
  return 1.0f - 2.0f / (exp_of(x + x) + 1.0f);
}

QUIRE_DEVICE float gelu_of(float x) {
  const float cube = x * x * 0.044715f;
  return x * sigmoid_of(x * (cube + 1.0f) * 1.59576912160573071176f);
}

// 1 - erf(x) by Abramowitz and Stegun's 7.1.26.
QUIRE_DEVICE float gelu_by_error_function(float x) {
  const float size = x < 0.0f ? -x : x;
  const float z = size * 0.70710678118654752440f;
  const float r = 1.0f / __builtin_fmaf(z, 0.3275911f, 1.0f);
  float series = 1.061405429f;
  series = __builtin_fmaf(series, r, -1.453152027f);
  series = __builtin_fmaf(series, r, 1.421413741f);
  series = __builtin_fmaf(series, r, -0.284496736f);
  series = __builtin_fmaf(series, r, 0.254829592f);
  const float lacking = series * r * exp_of(0.0f - z * z);
  return greatest(x, 0.0f) - size * 0.5f * lacking;
}

// arXiv 2411.13010. alpha_p and alpha_n went through softplus before.
QUIRE_DEVICE float xielu_of(float x, const ActivationArgs& args) {
  const float above = greatest(x, 0.0f);
  const float below = least(x, 0.0f);
  const float grown = exp_of(least(below, args.eps)) - 1.0f;
  const float curved = x <= 0.0f ? grown - below : 0.0f;
  const float sum = __builtin_fmaf(above * above, args.alpha_p, x * args.beta);
  return __builtin_fmaf(curved, args.beta + args.alpha_n, sum);
}

QUIRE_DEVICE float nonlinear_of(float x, const ActivationArgs& args) {
  switch (args.kind) {
    case Nonlinearity::kSilu: return silu_of(x);
    case Nonlinearity::kGelu: return gelu_of(x);
    case Nonlinearity::kGeluOfError: return gelu_by_error_function(x);
    case Nonlinearity::kQuickGelu: return x * sigmoid_of(x * 1.702f);
    case Nonlinearity::kRelu: return greatest(x, 0.0f);
    case Nonlinearity::kReluSquared: return greatest(x, 0.0f) * x;
    case Nonlinearity::kXielu: return xielu_of(x, args);
    case Nonlinearity::kTanh: return tanh_of(x);
    case Nonlinearity::kSigmoid: return sigmoid_of(x);
    default: return x;
  }
}

QUIRE_DEVICE float gated_of(float gate, float up, const ActivationArgs& args) {
  if (args.kind == Nonlinearity::kSwigluOai) {
    const float x = least(gate, 7.0f);
    return x * sigmoid_of(x * 1.702f) * (within(up, 7.0f) + 1.0f);
  }
  const float value = nonlinear_of(gate, args);
  if (args.limit == 0.0f) return value * up;
  return least(value, args.limit) * within(up, args.limit);
}

enum class RowMathKind : std::uint8_t {
  kActivate,
  kGate,
  kAdd,
  kScale,
  kScaleByNumber,
  kScaleColumns,
  kScaleRows,
  kSoftcap,
  kClamp
};

struct RowMathArgs {
  RowMathKind kind = RowMathKind::kActivate;
  const float* x = nullptr;  // the gate's input, or the summand; stride 0 repeats one row
  std::int64_t x_stride = 0;
  const float* up = nullptr;
  std::int64_t up_stride = 0;
  std::int64_t cols = 0;
  std::int64_t width = 1;  // kGate: columns with one gate
  float factor = 1.0f;     // a cap or upper bound too
  float low = 0.0f;        // kClamp: the lower bound
  const float* factors = nullptr;
  ActivationArgs activation = {};
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// A block computes a row.
struct RowMath {
  using Args = RowMathArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE float value(const Args& args, std::int64_t row, std::int64_t i, float out) {
    const float* x = args.x + row * args.x_stride;
    switch (args.kind) {
      case RowMathKind::kActivate:
        if (args.up == nullptr) return nonlinear_of(x[i], args.activation);
        return gated_of(x[i], args.up[row * args.up_stride + i], args.activation);
      case RowMathKind::kGate: return out * nonlinear_of(x[i / args.width], args.activation);
      case RowMathKind::kAdd: return __builtin_fmaf(x[i], args.factor, out);
      case RowMathKind::kScale: return out * args.factor;
      case RowMathKind::kScaleByNumber: return out * args.factors[0];
      case RowMathKind::kScaleColumns: return out * args.factors[i];
      case RowMathKind::kScaleRows: return out * args.factors[row];
      case RowMathKind::kSoftcap: return tanh_of(out / args.factor) * args.factor;
      case RowMathKind::kClamp: return least(greatest(out, args.low), args.factor);
    }
    return out;
  }

  // A place of `out` is read before it is written and by its own thread alone, so that it may be an input too.
  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = t.block_x();
    float* out = args.out + row * args.out_stride;
    const bool reads_out = args.kind != RowMathKind::kActivate;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      out[i] = value(args, row, i, reads_out ? out[i] : 0.0f);
  }
};

struct LayerNormArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t cols = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: none
  float eps = 0.0f;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// A block computes a row. x and out may be the same.
struct LayerNorm {
  using Args = LayerNormArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 16 * static_cast<int>(sizeof(float));

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto* sums = reinterpret_cast<float*>(t.shared());
    const float* x = args.x + t.block_x() * args.x_stride;
    float* out = args.out + t.block_x() * args.out_stride;
    const auto count = static_cast<float>(args.cols);
    float sum = 0.0f;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      sum = sum + x[i];
    const float mean = block_sum(t, sum, sums) / count;
    float squares = 0.0f;
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads)
      squares = __builtin_fmaf(x[i] - mean, x[i] - mean, squares);
    const float factor = 1.0f / __builtin_sqrtf(block_sum(t, squares, sums + 8) / count + args.eps);
    for (std::int64_t i = t.index(); i < args.cols; i += kThreads) {
      const float d = (x[i] - mean) * factor;
      out[i] = args.bias == nullptr ? d * args.weight[i] : __builtin_fmaf(d, args.weight[i], args.bias[i]);
    }
  }
};

}  // namespace quire::gpu
