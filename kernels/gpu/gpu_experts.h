// GpuExperts: routing, for which the host waits for the logits, and experts' feed-forwards as products over rows that
// are gathered by expert. Engine thread only.
// Invariant: a row's result depends on its own choices alone, whatever rows are gathered with it.
#pragma once

#include <vector>

#include "kernels/gpu/gpu_linear.h"
#include "kernels/gpu/step_uploads.h"
#include "kernels/routing.h"

namespace quire::gpu {

class GpuExperts {
 public:
  GpuExperts(Device& device, StepUploads& uploads, GpuLinearRunner& linear);

  // As GraphOps::route. Waits for what is enqueued.
  void route(MatrixView logits, const RouteOptions& options, std::span<std::int32_t> ids, std::span<float> weights);
  // As GraphOps::experts. `activate`: of all rows of gate_up, in place, where it is not SwiGLU.
  template <class Activate>
  void run(const ExpertArgs& args, std::span<const std::int32_t> ids, std::span<const float> weights, MatrixView x,
           MatrixView gate_up, MatrixView results, MatrixView out, const Activate& activate) {
    order_.group(ids, std::ssize(ids) / x.rows);
    multiply_gathered(args, x, gate_up);
    const std::int64_t width = args.gated ? gate_up.cols / 2 : gate_up.cols;
    const MatrixView activated{gate_up.data, gate_up.rows, width, gate_up.stride};
    const bool swiglu = is_swiglu(args);
    if (!swiglu) activate(activated, MatrixView{gate_up.data + width, gate_up.rows, width, gate_up.stride});
    multiply_down(args, swiglu ? gate_up : activated, swiglu, results);
    combine(results, weights, out);
  }

 private:
  void reserve(DeviceMemory& memory, std::int64_t floats);
  void enqueue_read(MatrixView x, std::vector<float>& out);
  void multiply_gathered(const ExpertArgs& args, MatrixView x, MatrixView gate_up);
  void multiply_down(const ExpertArgs& args, MatrixView in, bool swiglu, MatrixView results);
  void combine(MatrixView results, std::span<const float> weights, MatrixView out);

  Device& device_;
  StepUploads& uploads_;
  GpuLinearRunner& linear_;
  const Kernel& gather_;
  const Kernel& combine_;
  RouteRoom room_;
  ExpertOrder order_;
  DeviceMemory gathered_;
  DeviceMemory dense_;  // what the host reads
};

}  // namespace quire::gpu
