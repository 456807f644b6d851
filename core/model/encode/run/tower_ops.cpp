#include "core/model/encode/run/tower_ops.h"

#include <algorithm>
#include <cmath>

#include "core/model/parts/views.h"
#include "kernels/check.h"

namespace quire {

namespace {

using Kind = TowerStep::Kind;

// Elements that are worth waking a thread for.
constexpr std::int64_t kGrain = 8192;

}  // namespace

MatrixView TowerOps::room(Room room, std::int64_t rows, std::int64_t cols) {
  std::unique_ptr<Buffer>& buffer = rooms_[room];
  if (buffer == nullptr || buffer->size() < rows * cols) {
    backend_.synchronize();  // nothing enqueued uses the old one any more
    buffer = backend_.allocate(rows * cols);
  }
  return {buffer->data(), rows, cols, cols};
}

std::span<float> TowerOps::host_values(std::int64_t count) {
  if (std::ssize(host_values_) < count) host_values_.resize(static_cast<std::size_t>(count));
  return {host_values_.data(), static_cast<std::size_t>(count)};
}

MatrixView TowerOps::on_host(MatrixView x) {
  const MatrixView host = backend_.on_host(x, HostResult::kHidden);
  backend_.synchronize();
  return host;
}

void TowerOps::for_rows(std::int64_t rows, std::int64_t cols, const std::function<void(std::int64_t row)>& body) {
  backend_.parallel_for(rows, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(cols, 1)),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t row = begin; row < end; ++row)
                            body(row);
                        });
}

void TowerOps::norm(const TowerNorm& norm, MatrixView x, MatrixView out) {
  if (norm.kind == TowerNormKind::kRms) return backend_.rms_norm(x, norm.weight->data(), norm.eps, out);
  const float* const bias = norm.bias == nullptr ? nullptr : norm.bias->data();
  backend_.graph()->layer_norm(x, norm.weight->data(), bias, norm.eps, out);
}

void TowerOps::norm_exactly(const TowerNorm& norm, MatrixView x, MatrixView out) {
  const MatrixView bias_row{norm.bias == nullptr ? nullptr : norm.bias->data(), 1, x.cols, x.cols};
  const float* const weight = backend_.on_host({norm.weight->data(), 1, x.cols, x.cols}, HostResult::kLabels).data;
  const float* const bias = norm.bias == nullptr ? nullptr : backend_.on_host(bias_row, HostResult::kDrafted).data;
  const MatrixView read = on_host(x);
  const std::span<float> made = host_values(x.rows * x.cols);
  for_rows(x.rows, 4 * x.cols, [&](std::int64_t row) {
    const float* const from = read.data + row * read.stride;
    float* const to = made.data() + row * x.cols;
    const auto count = static_cast<double>(x.cols);
    double mean = 0.0;
    for (std::int64_t i = 0; i < x.cols; ++i)
      mean += static_cast<double>(from[i]) / count;
    double variance = 0.0;
    for (std::int64_t i = 0; i < x.cols; ++i)
      variance += (static_cast<double>(from[i]) - mean) * (static_cast<double>(from[i]) - mean) / count;
    const double factor = 1.0 / std::sqrt(variance + static_cast<double>(norm.eps));
    for (std::int64_t i = 0; i < x.cols; ++i) {
      const auto normed = static_cast<float>((static_cast<double>(from[i]) - mean) * factor);
      to[i] = normed * weight[i] + (bias == nullptr ? 0.0F : bias[i]);
    }
  });
  put(made, out);
}

void TowerOps::head_norm(const TowerNorm& norm, std::int64_t num_heads, std::int64_t head_dim, MatrixView x) {
  backend_.head_rms_norm(x, num_heads, head_dim, norm.weight->data(), norm.eps);
}

void TowerOps::multiply(const TowerProduct& product, MatrixView x, MatrixView out, bool accumulate) {
  if (!product.input.is_open()) {
    const MatrixView clamped = room(kClamped, x.rows, x.cols);
    backend_.graph()->copy(x, clamped);
    backend_.graph()->clamp(clamped, product.input.least, product.input.most);
    x = clamped;
  }
  const bool ends_plainly = product.output.is_open() && product.late_bias == nullptr;
  QUIRE_CHECK(!accumulate || ends_plainly, "a clamped product is added to what was there");
  backend_.linear(*product.linear, x, out, accumulate);
  if (!product.output.is_open()) backend_.graph()->clamp(out, product.output.least, product.output.most);
  if (product.late_bias != nullptr)
    backend_.graph()->add({product.late_bias->data(), out.rows, out.cols, 0}, 1.0F, out);
}

void TowerOps::multiply_all(std::span<const TowerProduct> products, MatrixView x, MatrixView out) {
  std::int64_t first = 0;
  for (const TowerProduct& product : products) {
    multiply(product, x, columns(out, first, product.outputs()));
    first += product.outputs();
  }
}

void TowerOps::activate(Nonlinearity kind, MatrixView gate, MatrixView up, MatrixView out) {
  backend_.graph()->activate({.kind = kind}, gate, up, out);
}

void TowerOps::add_product(const TowerProduct& product, const TowerNorm& norm, const Buffer* scale, MatrixView x,
                           MatrixView out) {
  if (!norm.is_there() && scale == nullptr && product.output.is_open() && product.late_bias == nullptr)
    return multiply(product, x, out, true);
  const MatrixView made = room(kOut, out.rows, out.cols);
  multiply(product, x, made);
  if (norm.is_there()) this->norm(norm, made, made);
  if (scale != nullptr) backend_.graph()->scale_columns(made, const_cast<Buffer*>(scale)->data());
  backend_.graph()->add(made, 1.0F, out);
}

void TowerOps::mean(std::int64_t count, MatrixView x, MatrixView out) {
  GraphOps& graph = *backend_.graph();
  for (std::int64_t k = 0; k < count; ++k) {
    const MatrixView each{x.data + k * x.stride, out.rows, out.cols, count * x.stride};
    k == 0 ? graph.copy(each, out) : graph.add(each, 1.0F, out);
  }
  graph.scale(out, 1.0F / static_cast<float>(count));
}

MatrixView TowerOps::run_steps(const TowerSteps& steps, MatrixView x) {
  Room free = kStepA;
  for (const TowerStepWeights& step : steps) {
    const MatrixView made = run_step(step, x, free);
    if (made.data == room(free, 0, 0).data) free = free == kStepA ? kStepB : kStepA;
    x = made;
  }
  return x;
}

void TowerOps::run_in_place(const TowerSteps& steps, MatrixView x) {
  if (!steps.empty()) backend_.graph()->copy(run_steps(steps, x), x);
}

// The result in the room `free`, or x where it only looks different.
MatrixView TowerOps::run_step(const TowerStepWeights& step, MatrixView x, Room free) {
  switch (step.step.kind) {
    case Kind::kNorm: {
      const MatrixView out = room(free, x.rows, x.cols);
      step.step.in_double ? norm_exactly(step.norm, x, out) : norm(step.norm, x, out);
      return out;
    }
    case Kind::kMerge: {
      QUIRE_CHECK(x.stride == x.cols && x.rows % step.step.count == 0, "rows that do not merge");
      const std::int64_t cols = x.cols * step.step.count;
      return {x.data, x.rows / step.step.count, cols, cols};
    }
    case Kind::kMean: {
      const MatrixView out = room(free, x.rows / step.step.count, x.cols);
      mean(step.step.count, x, out);
      return out;
    }
    case Kind::kLinear: {
      const MatrixView out = room(free, x.rows, step.product.outputs());
      multiply(step.product, x, out);
      return out;
    }
    case Kind::kActivate: {
      const MatrixView out = room(free, x.rows, x.cols);
      activate(step.step.activation, x, {}, out);
      return out;
    }
    case Kind::kGated: {
      const MatrixView both = room(kWide, x.rows, 2 * step.up.outputs());
      const MatrixView gate = columns(both, 0, step.up.outputs());
      const MatrixView up = columns(both, step.up.outputs(), step.up.outputs());
      multiply(step.product, x, gate);
      multiply(step.up, x, up);
      const MatrixView activated = room(kActivated, x.rows, gate.cols);
      activate(step.step.activation, gate, up, activated);
      const MatrixView out = room(free, x.rows, step.down.outputs());
      multiply(step.down, activated, out);
      return out;
    }
    case Kind::kScale:
    case Kind::kStandardise: {
      const MatrixView out = room(free, x.rows, x.cols);
      backend_.graph()->copy(x, out);
      if (step.step.kind == Kind::kScale) {
        backend_.graph()->scale(out, step.step.factor);
      } else {
        backend_.graph()->add({step.offset->data(), x.rows, x.cols, 0}, -1.0F, out);
        backend_.graph()->scale_columns(out, step.factors->data());
      }
      return out;
    }
  }
  return x;
}

std::int64_t outputs_of(std::span<const TowerProduct> products) {
  std::int64_t count = 0;
  for (const TowerProduct& product : products)
    count += product.outputs();
  return count;
}

std::int64_t merged_rows(const TowerSteps& steps) {
  std::int64_t rows = 1;
  for (const TowerStepWeights& step : steps)
    rows *= step.step.count;
  return rows;
}

std::int64_t work_of(const TowerSteps& steps) {
  std::int64_t work = 0;
  std::int64_t rows = merged_rows(steps);
  for (const TowerStepWeights& step : steps) {
    rows /= step.step.count;
    for (const TowerProduct* product : {&step.product, &step.up, &step.down}) {
      if (product->linear != nullptr) work += rows * product->inputs() * product->outputs();
    }
  }
  return work;
}

}  // namespace quire
