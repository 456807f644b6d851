// CpuLinear: weights packed in panels; LinearRunner: the product of activations with one. Packed weights are immutable
// after construction; a runner belongs to one thread at a time. Invariant: activations are packed once per operation,
// and each output row is the same whatever rows come with it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_activations.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/piece_ranges.h"

namespace quire {

class CpuLinear final : public Linear {
 public:
  struct Part {
    DType type = DType::kF32;
    std::int64_t rows = 0;
    std::int64_t first_output = 0;
    PanelLayout layout;
    const std::byte* panels = nullptr;
    float scale = 1.0f;
    std::vector<std::int32_t> order = {};  // order of input features; empty: their own
  };

  // Packs the parts into `memory`, packed_bytes(parts) of it, zeroed; without a pool on the caller's thread.
  CpuLinear(std::span<const WeightSource> parts, std::span<const float> bias, PanelForm form, ThreadPool* pool,
            SharedBytes memory);
  // Keeps a view of weights that were packed before.
  CpuLinear(std::span<const WeightSource> parts, std::span<const float> bias, std::span<const std::byte> packed);
  static std::size_t packed_bytes(std::span<const WeightSource> parts);

  std::int64_t in_features() const override { return in_features_; }
  std::int64_t out_features() const override { return out_features_; }
  std::size_t bytes() const override { return packed_.size() + bias_.size() * sizeof(float); }
  std::span<const std::byte> packed() const override { return packed_; }

  std::span<const Part> parts() const { return parts_; }
  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  std::int64_t in_features_ = 0;
  std::int64_t out_features_ = 0;
  std::vector<Part> parts_;
  std::vector<float> bias_;
  SharedBytes memory_;  // null where the weights were packed before
  std::span<const std::byte> packed_;
};

// A product among several computed together: out[i] = x[rows[i]] W^T + bias, all rows of x where rows is null.
struct LinearJob {
  const CpuLinear* weights = nullptr;
  ProductInput x;
  std::span<const std::int32_t> rows = {};
  MatrixView out;
  std::span<const OutputRange> wanted = {};  // columns of out that are written; empty: all
};

class LinearRunner {
 public:
  LinearRunner(const KernelTable& kernels, ThreadPool& pool);

  // out = x W^T + bias, or out += ...
  void run(const CpuLinear& weights, const ProductInput& x, MatrixView out, bool accumulate);
  // Computes only the columns in `wanted`; the others are not written.
  void run_some(const CpuLinear& weights, const ProductInput& x, std::span<const OutputRange> wanted, MatrixView out);
  // Runs all jobs without a barrier between them: the threads share the pieces of all. Jobs that name rows have the
  // same x.
  void run_jobs(std::span<const LinearJob> jobs, bool accumulate);

 private:
  // A share of one part: some of its panels times some of the row tiles.
  struct Piece {
    GemmArgs args;
    DType type;
    GemmRange range;
  };
  // A job that has begun: the parts that are computed now, which take their inputs in the same order, and the remaining
  // ones.
  struct Progress {
    const LinearJob* job = nullptr;
    std::span<const CpuLinear::Part> parts;
    std::span<const CpuLinear::Part> rest;
  };

  void run_some_parts(bool accumulate);
  WantedActivations wanted_by(std::span<const CpuLinear::Part> parts) const;
  void plan(bool accumulate);
  void plan_part(const LinearJob& job, const CpuLinear::Part& part, const PackedActivations& x, bool accumulate,
                 std::int64_t all_panels);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  ActivationPacker packer_;
  std::vector<Scratch> worker_scratch_;
  std::vector<std::byte*> worker_memory_;
  std::vector<Progress> progress_;
  std::vector<PackJob> pack_jobs_;
  std::vector<PackedActivations> packed_;
  std::vector<Piece> pieces_;
  PieceRanges ranges_;
};

}  // namespace quire
