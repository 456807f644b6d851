#include "kernels/gpu/gpu_graph_ops.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/kernels/streams.h"

namespace quire::gpu {
namespace {

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// Completes an activation's arguments by the numbers that all elements share.
ActivationArgs prepared(ActivationArgs args) {
  if (args.kind != Nonlinearity::kXielu) return args;
  args.alpha_p = softplus(args.alpha_p);
  args.alpha_n = softplus(args.alpha_n);
  return args;
}

}  // namespace

GpuGraphOps::GpuGraphOps(Device& device, StepUploads& uploads, GpuLinearRunner& linear, GpuAttention& attention)
    : device_(device),
      uploads_(uploads),
      linear_(linear),
      attention_(attention),
      experts_(device),
      row_math_(device.kernel("row_math")),
      layer_norm_(device.kernel("layer_norm")),
      gather_(device.kernel("gather")),
      mix_streams_(device.kernel("mix_streams")),
      add_to_streams_(device.kernel("add_to_streams")),
      match_length_(device.kernel("match_length")),
      keep_excess_(device.kernel("keep_excess")) {}

void GpuGraphOps::run(RowMathArgs args, MatrixView out) {
  args.cols = out.cols;
  args.out = out.data;
  args.out_stride = out.stride;
  if (out.rows > 0 && out.cols > 0) device_.launch(row_math_, {.x = out.rows}, args);
}

void GpuGraphOps::layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) {
  const LayerNormArgs args{.x = x.data,
                           .x_stride = x.stride,
                           .cols = x.cols,
                           .weight = weight,
                           .bias = bias,
                           .eps = eps,
                           .out = out.data,
                           .out_stride = out.stride};
  if (x.rows > 0) device_.launch(layer_norm_, {.x = x.rows}, args);
}

void GpuGraphOps::activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) {
  run({.kind = RowMathKind::kActivate,
       .x = gate.data,
       .x_stride = gate.stride,
       .up = up.data,
       .up_stride = up.stride,
       .activation = prepared(args)},
      {out.data, gate.rows, gate.cols, out.stride});
}

void GpuGraphOps::copy(MatrixView x, MatrixView out) {
  const GatherArgs args{.x = x.data, .x_stride = x.stride, .cols = x.cols, .out = out.data, .out_stride = out.stride};
  if (x.rows > 0 && x.cols > 0) device_.launch(gather_, {.x = x.rows, .y = spread_pieces(x.cols)}, args);
}

void GpuGraphOps::add(MatrixView x, float scale, MatrixView out) {
  run({.kind = RowMathKind::kAdd, .x = x.data, .x_stride = x.stride, .factor = scale},
      {out.data, x.rows, x.cols, out.stride});
}

void GpuGraphOps::scale(MatrixView x, float factor) {
  run({.kind = RowMathKind::kScale, .factor = factor}, x);
}

void GpuGraphOps::scale(MatrixView x, const float* factor) {
  run({.kind = RowMathKind::kScaleByNumber, .factors = factor}, x);
}

void GpuGraphOps::scale_columns(MatrixView x, const float* factors) {
  run({.kind = RowMathKind::kScaleColumns, .factors = factors}, x);
}

void GpuGraphOps::scale_rows(MatrixView x, std::span<const float> factors) {
  if (x.rows > 0) run({.kind = RowMathKind::kScaleRows, .factors = uploads_.put(factors)}, x);
}

void GpuGraphOps::gate(Nonlinearity kind, MatrixView gate, MatrixView x) {
  run({.kind = RowMathKind::kGate,
       .x = gate.data,
       .x_stride = gate.stride,
       .width = x.cols / gate.cols,
       .activation = {.kind = kind}},
      x);
}

void GpuGraphOps::softcap(MatrixView x, float cap) {
  run({.kind = RowMathKind::kSoftcap, .factor = cap}, x);
}

void GpuGraphOps::clamp(MatrixView x, float low, float high) {
  run({.kind = RowMathKind::kClamp, .factor = high, .low = low}, x);
}

void GpuGraphOps::attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                            const AttentionOptions& options, MatrixView out) {
  attention_.run(static_cast<const GpuKvStorage&>(kv), layer, batch, q, options, out);
}

ExpertChoices GpuGraphOps::route(MatrixView logits, const RouteOptions& options) {
  return experts_.route(logits, options);
}

void GpuGraphOps::scale_by_weights(const ExpertChoices& choices, MatrixView x) {
  QUIRE_CHECK(choices.count() == x.rows, "a row for each choice");
  run({.kind = RowMathKind::kScaleRows, .factors = choices.weights}, x);
}

void GpuGraphOps::experts(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up,
                          MatrixView results, MatrixView out) {
  check_expert_shapes(choices, x, gate_up, results, out);
  if (x.rows == 0) return;
  experts_.run(args, choices, x, gate_up, results, out, [&](MatrixView gates, MatrixView ups) {
    activate(args.activation, gates, args.gated ? ups : MatrixView{}, gates);
  });
}

void GpuGraphOps::mix_streams(MatrixView factors, MatrixView x, MatrixView out) {
  const auto count = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(factors.cols))));
  const StreamArgs args{.factors = factors.data,
                        .factors_stride = factors.stride,
                        .x = x.data,
                        .x_stride = x.stride,
                        .num_streams = count,
                        .width = x.cols / count,
                        .out = out.data,
                        .out_stride = out.stride};
  if (x.rows > 0) device_.launch(mix_streams_, {.x = x.rows}, args);
}

void GpuGraphOps::add_to_streams(MatrixView factors, MatrixView x, MatrixView streams) {
  const StreamArgs args{.factors = factors.data,
                        .factors_stride = factors.stride,
                        .x = x.data,
                        .x_stride = x.stride,
                        .num_streams = factors.cols,
                        .width = x.cols,
                        .out = streams.data,
                        .out_stride = streams.stride};
  if (x.rows > 0) device_.launch(add_to_streams_, {.x = x.rows}, args);
}

void GpuGraphOps::match_length(MatrixView like, MatrixView x) {
  const RowSumsArgs args{.like = like.data,
                         .like_stride = like.stride,
                         .like_cols = like.cols,
                         .x = x.data,
                         .x_stride = x.stride,
                         .cols = x.cols};
  if (x.rows > 0) device_.launch(match_length_, {.x = x.rows}, args);
}

void GpuGraphOps::keep_excess(MatrixView x, float deviations, bool of_sample) {
  const RowSumsArgs args{
      .deviations = deviations, .of_sample = of_sample, .x = x.data, .x_stride = x.stride, .cols = x.cols};
  if (x.rows > 0) device_.launch(keep_excess_, {.x = x.rows}, args);
}

void GpuGraphOps::head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) {
  const auto count = std::ssize(heads);
  for (std::int64_t head = 0; head < count; ++head) {
    const auto& weights = static_cast<const GpuLinear&>(*heads[static_cast<std::size_t>(head)]);
    const MatrixView from{x.data + head * (x.cols / count), x.rows, weights.in_features(), x.stride};
    const MatrixView to{out.data + head * (out.cols / count), out.rows, weights.out_features(), out.stride};
    linear_.run(weights, from, to, false);
  }
}

}  // namespace quire::gpu
