#include "kernels/gpu/gpu_experts.h"

#include "kernels/check.h"
#include "kernels/gpu/kernels/experts.h"
#include "kernels/gpu/kernels/row_ops.h"

namespace quire::gpu {
namespace {

MatrixView rows_from(MatrixView view, std::int64_t begin, std::int64_t end) {
  return {view.data + begin * view.stride, end - begin, view.cols, view.stride};
}

}  // namespace

GpuExperts::GpuExperts(Device& device, StepUploads& uploads, GpuLinearRunner& linear)
    : device_(device),
      uploads_(uploads),
      linear_(linear),
      gather_(device.kernel("gather")),
      combine_(device.kernel("combine_choices")) {}

void GpuExperts::reserve(DeviceMemory& memory, std::int64_t floats) {
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (memory.bytes() >= bytes) return;
  device_.synchronize();  // what is enqueued may still use what is given up
  memory = DeviceMemory();
  memory = DeviceMemory(device_, bytes, "rows of experts");
}

// Once the device has been waited for, `out` has the values.
void GpuExperts::enqueue_read(MatrixView x, std::vector<float>& out) {
  reserve(dense_, x.rows * x.cols);
  const GatherArgs copies{
      .x = x.data, .x_stride = x.stride, .cols = x.cols, .out = dense_.as<float>(), .out_stride = x.cols};
  device_.launch(gather_, {.x = x.rows}, copies);
  out.resize(static_cast<std::size_t>(x.rows * x.cols));
  device_.copy_to_host(reinterpret_cast<std::byte*>(out.data()), dense_.data(), out.size() * sizeof(float),
                       Stream::kCompute);
}

void GpuExperts::route(MatrixView logits, const RouteOptions& options, std::span<std::int32_t> ids,
                       std::span<float> weights) {
  check_route_shapes(logits, options, ids, weights);
  if (logits.rows == 0) return;
  RouteOptions host = options;
  std::vector<float> values;
  std::vector<float> bias;
  std::vector<float> scales;
  const auto row_at = [&](const float* at) { return MatrixView{const_cast<float*>(at), 1, logits.cols, logits.cols}; };
  enqueue_read(logits, values);
  if (options.choice_bias != nullptr) enqueue_read(row_at(options.choice_bias), bias);
  if (options.expert_scale != nullptr) enqueue_read(row_at(options.expert_scale), scales);
  device_.synchronize();
  if (options.choice_bias != nullptr) host.choice_bias = bias.data();
  if (options.expert_scale != nullptr) host.expert_scale = scales.data();
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const std::int64_t at = row * options.num_chosen;
    route_row({values.data() + row * logits.cols, static_cast<std::size_t>(logits.cols)}, host, ids.data() + at,
              weights.data() + at, room_);
  }
}

void GpuExperts::multiply_gathered(const ExpertArgs& args, MatrixView x, MatrixView gate_up) {
  reserve(gathered_, gate_up.rows * x.cols);
  const MatrixView gathered{gathered_.as<float>(), gate_up.rows, x.cols, x.cols};
  const GatherArgs copies{.x = x.data,
                          .x_stride = x.stride,
                          .rows = uploads_.put(std::span<const std::int32_t>(order_.sources)),
                          .cols = x.cols,
                          .out = gathered.data,
                          .out_stride = gathered.stride};
  device_.launch(gather_, {.x = gathered.rows}, copies);
  for (const ExpertOrder::Rows& rows : order_.rows)
    linear_.run(static_cast<const GpuLinear&>(*args.gate_up[rows.expert]), rows_from(gathered, rows.begin, rows.end),
                rows_from(gate_up, rows.begin, rows.end), false);
}

void GpuExperts::multiply_down(const ExpertArgs& args, MatrixView in, bool swiglu, MatrixView results) {
  for (const ExpertOrder::Rows& rows : order_.rows) {
    const MatrixView part = rows_from(in, rows.begin, rows.end);
    linear_.run(static_cast<const GpuLinear&>(*args.down[rows.expert]), swiglu ? gated(part) : ProductInput(part),
                rows_from(results, rows.begin, rows.end), false);
  }
}

void GpuExperts::combine(MatrixView results, std::span<const float> weights, MatrixView out) {
  const CombineArgs args{.results = results.data,
                         .results_stride = results.stride,
                         .places = uploads_.put(std::span<const std::int32_t>(order_.places)),
                         .weights = uploads_.put(weights),
                         .each = results.rows / out.rows,
                         .cols = out.cols,
                         .out = out.data,
                         .out_stride = out.stride};
  device_.launch(combine_, {.x = out.rows}, args);
}

}  // namespace quire::gpu
