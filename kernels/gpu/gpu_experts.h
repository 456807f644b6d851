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
    group_by_expert(ids, std::ssize(ids) / x.rows);
    multiply_gathered(args, x, gate_up);
    const std::int64_t width = args.gated ? gate_up.cols / 2 : gate_up.cols;
    const MatrixView activated{gate_up.data, gate_up.rows, width, gate_up.stride};
    const bool is_swiglu = args.gated && args.activation.kind == Nonlinearity::kSilu && args.activation.limit == 0.0f;
    if (!is_swiglu) activate(activated, MatrixView{gate_up.data + width, gate_up.rows, width, gate_up.stride});
    multiply_down(args, is_swiglu ? gate_up : activated, is_swiglu, results);
    combine(results, weights, out);
  }

 private:
  // The rows of one expert among those that are ordered by expert.
  struct ExpertRows {
    std::size_t expert;
    std::int64_t begin;
    std::int64_t end;
  };

  void reserve(DeviceMemory& memory, std::int64_t floats);
  std::vector<float> read(MatrixView x);
  void group_by_expert(std::span<const std::int32_t> ids, std::int64_t num_chosen);
  void multiply_gathered(const ExpertArgs& args, MatrixView x, MatrixView gate_up);
  void multiply_down(const ExpertArgs& args, MatrixView in, bool is_swiglu, MatrixView results);
  void combine(MatrixView results, std::span<const float> weights, MatrixView out);

  Device& device_;
  StepUploads& uploads_;
  GpuLinearRunner& linear_;
  const Kernel& gather_;
  const Kernel& combine_;
  RouteRoom room_;
  std::vector<std::int32_t> order_;    // choices, ordered by expert
  std::vector<std::int32_t> sources_;  // the row of each
  std::vector<std::int32_t> places_;   // of each choice in that order
  std::vector<ExpertRows> expert_rows_;
  DeviceMemory gathered_;
  DeviceMemory dense_;  // what the host reads
};

}  // namespace quire::gpu
