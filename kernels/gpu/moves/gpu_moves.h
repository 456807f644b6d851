// GpuMoves: blocks and states that move between a device and the host beside its steps, on the copy stream through
// pinned memory. Engine thread only. On the device, a step's moves wait for work enqueued before them, and later work
// waits for them; the host never waits. Invariant: a step's pinned memory is reused only after that step.
#pragma once

#include <array>
#include <vector>

#include "kernels/gpu/device/device.h"
#include "kernels/step_ops.h"

namespace quire::gpu {

class GpuMoves {
 public:
  explicit GpuMoves(Device& device);
  GpuMoves(const GpuMoves&) = delete;
  GpuMoves& operator=(const GpuMoves&) = delete;
  ~GpuMoves();

  // Pinned memory comes from set 0 or 1 from here on, whose moves are done.
  void begin(std::size_t set);
  void enqueue(std::span<const BlockTransfer> transfers);
  // Delivers the bytes that the set's moves read; the moves must be done.
  void finish(std::size_t set);
  TransferTimes times(std::size_t set) const { return sets_[set].times; }

 private:
  struct Chunk {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  struct Read {
    const std::byte* from;
    std::span<std::byte> out;
  };
  struct Set {
    std::vector<Chunk> chunks;
    std::vector<Read> reads;
    std::size_t bytes_read = 0;
    std::size_t bytes_written = 0;
    Event began = 0;
    Event ended = 0;
    TransferTimes times{};
  };

  std::byte* take(Set& set, std::size_t bytes);
  void take_places(Set& set, std::span<const BlockTransfer> transfers);
  void copy(Set& set, const BlockTransfer& transfer, std::byte* pinned);

  Device& device_;
  Event before_;  // event on the compute stream that moves wait for
  std::array<Set, 2> sets_;
  std::vector<std::byte*> places_;  // places of the transfers being enqueued
  std::size_t current_ = 0;
};

}  // namespace quire::gpu
