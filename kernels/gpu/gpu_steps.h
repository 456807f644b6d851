// GpuSteps: two steps in flight on a device: which memory of arrays and results is which step's, by events, and
// drawing. Engine thread only. Invariants: a step's memory is used again only behind its event; results of a draw are
// read only behind that of its step.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/gpu/device/host_results.h"
#include "kernels/gpu/gpu_draw.h"
#include "kernels/gpu/moves/gpu_moves.h"
#include "kernels/gpu/moves/step_uploads.h"
#include "kernels/step_ops.h"

namespace quire::gpu {

class GpuSteps final : public StepOps {
 public:
  GpuSteps(GatheringDevice& device, StepUploads& uploads, HostResults& results);
  GpuSteps(const GpuSteps&) = delete;
  GpuSteps& operator=(const GpuSteps&) = delete;
  ~GpuSteps() override;

  void reserve(std::int64_t max_draws, std::int64_t max_scores, std::int64_t vocab_size) override;
  std::int64_t begin() override;
  void expect_repetition() override { device_.expect_repetition(); }
  void move_blocks(std::span<const BlockTransfer> transfers) override { moves_.enqueue(transfers); }
  void launch() override { device_.flush(); }
  void draw(MatrixView logits, std::int64_t num_places, std::span<const TokenDraw> draws,
            std::span<const TokenScore> scores) override;
  void put_drawn(std::int64_t place, std::int32_t token) override;
  void wait_enqueued() override;
  void end() override;
  void wait(std::int64_t step) override;
  std::span<const TokenDrawn> drawn(std::int64_t step) const override;
  std::span<const TokenScored> scored(std::int64_t step) const override;
  TransferTimes transfer_times(std::int64_t step) const override;
  DeviceMemoryUse memory() const override {
    const std::size_t total = device_.total_memory();
    return {total, total - std::min(device_.free_memory(), total)};
  }

  // Address of the ids on the device, with the ids filled in that the step before draws.
  const std::int32_t* known_ids(std::span<const std::int32_t> ids, std::int64_t num_rows);

 private:
  struct Set {
    Event done = 0;
    bool is_open = false;  // begun and not ended
    std::size_t num_drawn = 0;
    std::size_t num_scored = 0;
    DeviceMemory drawn;
    DeviceMemory scored;
    std::byte* host_drawn = nullptr;
    std::byte* host_scored = nullptr;
  };

  Set& current() { return sets_[static_cast<std::size_t>(number_ % kInFlight)]; }
  const Set& set_of(std::int64_t step) const;
  void take_results(Set& set, std::size_t num_draws, std::size_t num_scores);
  void grow(DeviceMemory& memory, std::byte*& host, std::size_t bytes);

  GatheringDevice& device_;
  StepUploads& uploads_;
  HostResults& results_;
  const Kernel& fill_;
  Event enqueued_;
  GpuDraw draw_;
  GpuMoves moves_;
  std::array<Set, kInFlight> sets_;
  std::int64_t number_ = -1;  // number of the step that began last
};

}  // namespace quire::gpu
