// GpuStateStorage: the states of sequences on a device, laid out [state][floats]; a matrix state is
// [head][key_dim][columns], columns a multiple of kStatePanel. GpuRecurrentOps: recurrent mixers, a launch for each
// operation over all sequences of a step. Engine thread only. Invariant: a new storage is zeros.
#pragma once

#include "kernels/backend.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/kernels/recurrent.h"
#include "kernels/gpu/moves/step_uploads.h"

namespace quire::gpu {

class GpuStateStorage final : public StateStorage {
 public:
  GpuStateStorage(Device& device, const StateLayout& layout);

  const StateLayout& layout() const override { return layout_; }
  std::size_t state_bytes() const override;
  void copy_state(std::int32_t source, std::int32_t destination) override;
  void read_state(std::int32_t state, std::span<std::byte> out) const override;
  void write_state(std::int32_t state, std::span<const std::byte> in) override;

  float* data() const { return memory_.as<float>(); }
  std::byte* at(std::int32_t state) const;
  // Does what copy_state() does, on a stream.
  void copy(std::int32_t source, std::int32_t destination, Stream stream);

 private:
  Device& device_;
  StateLayout layout_;
  DeviceMemory memory_;
};

class GpuRecurrentOps final : public RecurrentOps {
 public:
  GpuRecurrentOps(Device& device, StepUploads& uploads);

  std::int64_t most_key_dim() const override { return AdvanceState<StateForm::kDelta>::kMostKeys; }
  std::unique_ptr<StateStorage> allocate_states(const StateLayout& layout) override;
  void short_conv(const AttentionBatch& batch, const StatePart& state, const ConvArgs& args, MatrixView x,
                  MatrixView before, MatrixView after, MatrixView out) override;
  void delta_rule(const AttentionBatch& batch, const StatePart& state, const DeltaArgs& args, MatrixView q,
                  MatrixView k, MatrixView v, MatrixView decay, MatrixView beta, MatrixView out) override;
  void state_space(const AttentionBatch& batch, const StatePart& state, const StateSpaceArgs& args, MatrixView x,
                   MatrixView b, MatrixView c, MatrixView dt, MatrixView out) override;
  void selective_scan(const AttentionBatch& batch, const StatePart& state, const SelectiveScanArgs& args, MatrixView x,
                      MatrixView b, MatrixView c, MatrixView dt, MatrixView out) override;
  void gated_norm(const GatedNormArgs& args, MatrixView gate, MatrixView x) override;

 private:
  SequenceStates sequences_of(const AttentionBatch& batch, const StatePart& part);
  void advance(const Kernel& kernel, const AttentionBatch& batch, const AdvanceArgs& args);

  Device& device_;
  StepUploads& uploads_;
  const Kernel& short_conv_;
  const Kernel& delta_;
  const Kernel& delta_per_channel_;
  const Kernel& state_space_;
  const Kernel& selective_scan_;
  const Kernel& gated_norm_;
};

}  // namespace quire::gpu
