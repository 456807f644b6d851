// CpuRecurrentOps: recurrent mixers with the kernels of one ISA level, and CpuStateStorage, their states, laid out
// [state][floats]; a matrix state is [head][panel][key_dim][kStatePanel]. One thread at a time.
// Invariant: a sequence's rows of one head (of one run of columns in a convolution) are computed by one thread in the
// order of their positions.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/thread_pool.h"

namespace quire {

class CpuStateStorage final : public StateStorage {
 public:
  explicit CpuStateStorage(const StateLayout& layout);

  const StateLayout& layout() const override { return layout_; }
  std::size_t state_bytes() const override;
  void copy_state(std::int32_t source, std::int32_t destination) override;
  void read_state(std::int32_t state, std::span<std::byte> out) const override;
  void write_state(std::int32_t state, std::span<const std::byte> in) override;

  float* at(std::int32_t state) const;

 private:
  StateLayout layout_;
  AlignedMemory memory_;
};

class CpuRecurrentOps final : public RecurrentOps {
 public:
  CpuRecurrentOps(const KernelTable& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.size())) {}

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
  // Rows of one sequence and its state.
  struct Run {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    float* state = nullptr;
    bool fresh = false;
  };
  using Advance = decltype(RecurrentTable::delta);

  Run run_of(const AttentionBatch& batch, const StatePart& part, std::int64_t sequence) const;
  // Cuts every sequence's work into `parts` and calls body(worker, run, part) for each.
  template <class Body>
  void for_parts(const AttentionBatch& batch, const StatePart& state, std::int64_t parts, const Body& body);
  void advance_head(Advance advance, StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim,
                    std::int64_t value_dim, float* state) const;

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // indexed by worker
};

}  // namespace quire
