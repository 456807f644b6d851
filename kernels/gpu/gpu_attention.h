// GpuAttention: stores a step's K and V and enqueues paged attention: a list of rows and their partitions, planned on
// the host. Engine thread only. Invariant: a row's partitions are cut by absolute position, whatever comes with it.
#pragma once

#include <vector>

#include "kernels/gpu/gpu_kv.h"
#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/step_uploads.h"

namespace quire::gpu {

class GpuAttention {
 public:
  GpuAttention(Device& device, StepUploads& uploads);

  void store(GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v);
  void run(const GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
           const AttentionOptions& options, MatrixView out);

 private:
  void plan(const AttentionBatch& batch, const AttentionOptions& options);
  const float* slopes(const AttentionOptions& options);

  Device& device_;
  StepUploads& uploads_;
  const Kernel* store_[4];  // by KvDType
  const Kernel* attend_[4];
  const Kernel& merge_;
  std::vector<AttendItem> items_;
  std::vector<MergeItem> rows_;
  std::vector<float> slopes_;
  DeviceMemory partials_;
};

}  // namespace quire::gpu
