// GpuGraphOps: GraphOps on a device, but for the changes of experts by adapters (ExpertArgs::changes): a model that
// needs them is refused before (Backend::has). Engine thread only.
// Invariant (batch invariance): as Backend's.
#pragma once

#include "kernels/gpu/gpu_attention.h"
#include "kernels/gpu/gpu_experts.h"
#include "kernels/gpu/gpu_linear.h"
#include "kernels/gpu/kernels/graph_rows.h"

namespace quire::gpu {

class GpuGraphOps final : public GraphOps {
 public:
  GpuGraphOps(Device& device, StepUploads& uploads, GpuLinearRunner& linear, GpuAttention& attention);

  void layer_norm(MatrixView x, const float* weight, const float* bias, float eps, MatrixView out) override;
  void activate(const ActivationArgs& args, MatrixView gate, MatrixView up, MatrixView out) override;
  void copy(MatrixView x, MatrixView out) override;
  void add(MatrixView x, float scale, MatrixView out) override;
  void scale(MatrixView x, float factor) override;
  void scale(MatrixView x, const float* factor) override;
  void scale_columns(MatrixView x, const float* factors) override;
  void scale_rows(MatrixView x, std::span<const float> factors) override;
  void gate(Nonlinearity kind, MatrixView gate, MatrixView x) override;
  void softcap(MatrixView x, float cap) override;
  void clamp(MatrixView x, float low, float high) override;
  void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                 const AttentionOptions& options, MatrixView out) override;

  ExpertChoices route(MatrixView logits, const RouteOptions& options) override;
  void scale_by_weights(const ExpertChoices& choices, MatrixView x) override;
  void experts(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up,
               MatrixView results, MatrixView out) override;
  void mix_streams(MatrixView factors, MatrixView x, MatrixView out) override;
  void add_to_streams(MatrixView factors, MatrixView x, MatrixView streams) override;
  void match_length(MatrixView like, MatrixView x) override;
  void keep_excess(MatrixView x, float deviations, bool of_sample) override;
  void head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) override;

 private:
  void run(RowMathArgs args, MatrixView out);

  Device& device_;
  StepUploads& uploads_;
  GpuLinearRunner& linear_;
  GpuAttention& attention_;
  GpuExperts experts_;
  const Kernel& row_math_;
  const Kernel& layer_norm_;
  const Kernel& gather_;
  const Kernel& mix_streams_;
  const Kernel& add_to_streams_;
  const Kernel& match_length_;
  const Kernel& keep_excess_;
};

}  // namespace quire::gpu
