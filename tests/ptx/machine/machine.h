// Executes a function of PTX for a grid, a block after the other. Global addresses are the process's own; each access
// is checked against the given ranges. Shared memory must be written before it is read. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tests/ptx/counts.h"
#include "tests/ptx/machine/warp.h"

namespace quire::ptx {

struct MemoryRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Launch {
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  int threads = kLanes;
  int shared_bytes = 0;
  std::span<const std::byte> params;
};

struct RunOptions {
  std::uint64_t seed = 0;  // 0: warps in turn, lanes in lockstep; else lanes and warps alone, in an order drawn by it
  bool early_copies = false;  // asynchronous copies land when they are issued
};

// A block under execution.
class Block {
 public:
  Block(const Function& function, const Launch& launch, std::span<const MemoryRange> memory, const RunOptions& options,
        LaunchCounts& counts);

  void run(std::int64_t x, std::int64_t y, std::mt19937_64* random);

  const Function& function() const { return function_; }
  const Launch& launch() const { return launch_; }
  const RunOptions& options() const { return options_; }
  std::int64_t x() const { return x_; }
  std::int64_t y() const { return y_; }
  std::span<std::byte> shared() { return shared_; }
  std::span<std::uint8_t> written() { return written_; }  // 1: the byte of shared memory was written
  bool in_range(std::uint64_t address, int bytes) const;
  InstructionCounts& counts_of(const Instruction& in);
  void count_access(const Instruction& in, Space space, const LaneAddresses& addresses);

 private:
  Warp* choose(std::mt19937_64* random);
  void release_barrier();

  const Function& function_;
  const Launch& launch_;
  std::span<const MemoryRange> memory_;  // sorted by address
  const RunOptions& options_;
  LaunchCounts& counts_;
  std::int64_t x_ = 0;
  std::int64_t y_ = 0;
  std::vector<std::byte> shared_;
  std::vector<std::uint8_t> written_;
  std::vector<std::unique_ptr<Warp>> warps_;
};

// memory: sorted by address. Throws PtxError.
LaunchCounts execute(const Function& function, const Launch& launch, std::span<const MemoryRange> memory,
                     const RunOptions& options);

}  // namespace quire::ptx
