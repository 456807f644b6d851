// GpuAttention: stores a step's K and V and enqueues paged attention: a list of rows and their partitions, planned on
// the host, or of tiles of rows. The layer's shape and the cache's type alone decide between the two. Engine thread
// only. Invariants: a row's partitions are cut by absolute position, whatever else is in the batch; the results of
// partitions take at most `partial_bytes`, or what one row needs; rows that do not fit are computed after the others.
#pragma once

#include <vector>

#include "kernels/gpu/gpu_kv.h"
#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/moves/step_uploads.h"

namespace quire::gpu {

class GpuAttention {
 public:
  GpuAttention(Device& device, StepUploads& uploads, std::size_t partial_bytes);

  void store(GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v);
  void run(const GpuKvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
           const AttentionOptions& options, MatrixView out);

 private:
  // The kernels of tiles of 16 and of 64 query vectors.
  struct TileKernels {
    const Kernel* few;
    const Kernel* many;
  };
  // Rows of a step that are computed together.
  struct RowRange {
    std::int32_t begin;
    std::int32_t end;
  };
  static constexpr std::int64_t kFewVectors = 16;
  static constexpr std::int64_t kManyVectors = 64;

  void plan_rows(const AttentionBatch& batch, const AttentionOptions& options, std::size_t row_bytes);
  void plan_items(const AttentionBatch& batch, RowRange range);
  void plan_tiles(const AttentionBatch& batch, RowRange range, std::int64_t group);
  void add_tiles(const AttentionBatch& batch, std::size_t sequence, RowRange range, std::int64_t rows_each,
                 std::vector<AttendTile>& out);
  void attend_rows(const GpuKvStorage& kv, const AttentionBatch& batch, RowRange range, AttentionArgs args);
  void attend_items(const GpuKvStorage& kv, AttentionArgs args);
  void attend_tiles(const TileKernels& kernels, AttentionArgs args);
  void launch_tiles(const Kernel& kernel, const std::vector<AttendTile>& tiles, std::int64_t vectors,
                    AttentionArgs args);
  const TileKernels* tile_kernels(const GpuKvStorage& kv, std::int64_t key_dim, std::int64_t value_dim) const;
  const float* slopes(const AttentionOptions& options);

  Device& device_;
  StepUploads& uploads_;
  const Kernel* store_[4];  // indexed by KvDType
  const Kernel* attend_[4];
  TileKernels tiles_f16_[2];  // keys up to 128 and up to 256
  TileKernels tiles_bf16_[2];
  const Kernel& merge_;
  std::vector<AttendItem> items_;
  std::vector<AttendTile> few_;  // tiles of sequences with few query vectors
  std::vector<AttendTile> many_;
  const std::size_t partial_bytes_;
  std::vector<MergeItem> rows_;
  std::vector<RowRange> ranges_;
  std::int64_t num_partials_ = 0;  // most partial results of a range
  std::vector<float> slopes_;
  DeviceMemory partials_;
};

}  // namespace quire::gpu
