// GpuExperts: routing of rows to experts and the experts' feed-forwards, all of it on the device: the host waits for no
// choice. Choices are grouped by expert, rows quantised into tiles of each expert's own, and a product of all experts
// is one launch over items that the device made. Engine thread only. Invariant: a row's result depends on its own
// choices alone, whatever rows come with it.
#pragma once

#include <map>
#include <vector>

#include "kernels/gpu/gpu_linear.h"
#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/routing.h"

namespace quire::gpu {

class GpuExperts {
 public:
  explicit GpuExperts(Device& device);

  // Implements GraphOps::route.
  ExpertChoices route(MatrixView logits, const RouteOptions& options);
  // Implements GraphOps::experts. `activate` changes all rows of gate_up in place, unless the activation is SwiGLU.
  template <class Activate>
  void run(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up, MatrixView results,
           MatrixView out, const Activate& activate) {
    group(choices, std::ssize(args.gate_up));
    multiply(args.gate_up, x, sources_.as<const std::int32_t>(), gate_up);
    const std::int64_t width = args.gated ? gate_up.cols / 2 : gate_up.cols;
    const MatrixView activated{gate_up.data, gate_up.rows, width, gate_up.stride};
    const bool swiglu = is_swiglu(args);
    if (!swiglu) activate(activated, MatrixView{gate_up.data + width, gate_up.rows, width, gate_up.stride});
    multiply(args.down, swiglu ? gated(gate_up) : ProductInput(activated), nullptr, results);
    combine(results, choices, out);
  }

 private:
  using Experts = std::span<const std::unique_ptr<Linear>>;

  // A matrix of each expert, stacked into the experts' products.
  struct Part {
    const GpuLinear::Part* first = nullptr;  // the first expert's; all are alike
    const float* bias = nullptr;             // the first expert's
    DeviceMemory weights = {};               // [num_experts] ExpertWeights
  };
  struct Stack {
    std::vector<std::uint64_t> serials;  // serials of the experts
    std::vector<Part> parts;
  };
  // Items of a fixed number of rows.
  struct Items {
    std::int64_t rows = 0;
    std::int64_t count = 0;  // the largest number of items
    DeviceMemory memory = {};
    bool is_planned = false;  // planned for the present choices
  };

  const Stack& stack_of(Experts experts);
  Stack make_stack(Experts experts);
  void reserve(DeviceMemory& memory, std::int64_t bytes);
  void group(const ExpertChoices& choices, std::int64_t num_experts);
  const Items& items_of(std::size_t size);
  // sources: by place, the row of x; null: its own.
  void multiply(Experts experts, const ProductInput& x, const std::int32_t* sources, MatrixView out);
  void quantise(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows);
  void round(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows, DType type);
  MatrixView make_rows(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows);
  NormQuantiseArgs made_by(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows) const;
  std::int64_t num_tiles() const;  // most tiles of eight rows that there can be
  // The tiles, and as many after them as the last item's kernel reads.
  std::int64_t tile_stride() const { return num_tiles() + kMostTilesOfItem; }
  void combine(MatrixView results, const ExpertChoices& choices, MatrixView out);

  Device& device_;
  const Kernel& route_;
  const Kernel& group_;
  const Kernel& plan_;
  const Kernel& combine_;
  const Kernel* quantise_[3];  // indexed by ProductInput::Form
  const Kernel* make_rows_[3];
  const Kernel* round_f16_[3];
  const Kernel* round_bf16_[3];
  std::map<std::uint64_t, Stack> stacks_;  // keyed by the first expert's serial
  std::int64_t num_experts_ = 0;
  std::int64_t num_choices_ = 0;
  std::int64_t num_chosen_ = 0;                           // per row
  Items items_[3] = {};                                   // items of 8, 32 and 64 rows
  DeviceMemory ids_, weights_, groups_;                   // results of the last route()
  DeviceMemory ranges_, sources_, row_experts_, places_;  // results of the last group()
  DeviceMemory tiles_, half_tiles_, row_scales_, made_rows_;
};

}  // namespace quire::gpu
