#include "kernels/cpu/cpu_graph_ops.h"

#include <algorithm>

#include "kernels/cpu/rows/graph_math.h"

namespace quire {
namespace {

constexpr std::int64_t kCostOfExp = 4;  // cost of an exponential in for_rows' elements

// Completes an activation's arguments by the numbers that all elements share.
ActivationArgs prepared(ActivationArgs args) {
  if (args.kind != Nonlinearity::kXielu) return args;
  args.alpha_p = softplus(args.alpha_p);
  args.alpha_n = softplus(args.alpha_n);
  return args;
}

}  // namespace

void CpuGraphOps::layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) {
  for_rows(x.rows, x.cols,
           [&](std::int64_t row) { kernels_.layer_norm(row_of(x, row), weight, bias, eps, x.cols, row_of(out, row)); });
}

void CpuGraphOps::activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) {
  const ActivationArgs made = prepared(args);
  for_rows(gate.rows, kCostOfExp * gate.cols, [&](std::int64_t row) {
    kernels_.activate(made, row_of(gate, row), up.data == nullptr ? nullptr : row_of(up, row), gate.cols,
                      row_of(out, row));
  });
}

void CpuGraphOps::copy(MatrixView x, MatrixView out) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) { std::copy_n(row_of(x, row), x.cols, row_of(out, row)); });
}

void CpuGraphOps::add(MatrixView x, float scale, MatrixView out) {
  for_rows(x.rows, x.cols,
           [&](std::int64_t row) { kernels_.add_scaled(row_of(x, row), scale, x.cols, row_of(out, row)); });
}

void CpuGraphOps::scale(MatrixView x, float factor) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) { kernels_.scale(row_of(x, row), factor, x.cols, row_of(x, row)); });
}

void CpuGraphOps::scale_columns(MatrixView x, const float* factors) {
  for_rows(x.rows, x.cols,
           [&](std::int64_t row) { kernels_.recurrent.multiply(row_of(x, row), factors, x.cols, row_of(x, row)); });
}

void CpuGraphOps::scale_rows(MatrixView x, std::span<const float> factors) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    kernels_.scale(row_of(x, row), factors[static_cast<std::size_t>(row)], x.cols, row_of(x, row));
  });
}

void CpuGraphOps::gate(Nonlinearity kind, MatrixView gate, MatrixView x) {
  const ActivationArgs args{.kind = kind};
  const std::int64_t width = x.cols / gate.cols;
  for_rows(x.rows, kCostOfExp * x.cols, [&](std::int64_t row) {
    float* to = row_of(x, row);
    if (width == 1) return kernels_.activate(args, row_of(gate, row), to, x.cols, to);
    constexpr std::int64_t kTogether = 64;
    float factors[kTogether];
    for (std::int64_t first = 0; first < gate.cols; first += kTogether) {
      const std::int64_t count = std::min(kTogether, gate.cols - first);
      kernels_.activate(args, row_of(gate, row) + first, nullptr, count, factors);
      for (std::int64_t g = 0; g < count; ++g, to += width)
        kernels_.scale(to, factors[g], width, to);
    }
  });
}

void CpuGraphOps::softcap(MatrixView x, float cap) {
  for_rows(x.rows, kCostOfExp * x.cols,
           [&](std::int64_t row) { kernels_.softcap(row_of(x, row), cap, x.cols, row_of(x, row)); });
}

void CpuGraphOps::clamp(MatrixView x, float low, float high) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    float* values = row_of(x, row);
    for (std::int64_t i = 0; i < x.cols; ++i)
      values[i] = std::clamp(values[i], low, high);
  });
}

void CpuGraphOps::attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                            const AttentionOptions& options, MatrixView out) {
  attention_.run(static_cast<const CpuKvStorage&>(kv), layer, batch, q, options, out);
}

}  // namespace quire
