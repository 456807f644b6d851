// Counts: instructions that a launch executed and bytes it moved. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "tests/ptx/machine/program.h"

namespace quire::ptx {

inline constexpr int kSectorBytes = 32;

// Counts of one instruction, by warps and not by lanes.
struct InstructionCounts {
  std::int64_t executed = 0;
  std::int64_t bank_conflicts = 0;  // further cycles of shared memory
  std::int64_t sectors = 0;         // sectors of global memory, over all requests
};

struct LaunchCounts {
  std::vector<InstructionCounts> of;  // by instruction
  std::set<std::uint64_t> touched;    // sectors of global memory

  std::int64_t executed(const Function& function, const std::function<bool(const Instruction&)>& counts) const;
  std::int64_t executed(const Function& function, Kind kind) const;
  std::int64_t bank_conflicts() const;
};

struct LaneAddresses {
  std::array<std::uint64_t, kLanes> of{};
  std::uint32_t lanes = 0;
  int bytes = 0;  // bytes that each lane accesses
};

// Cycles beyond those without conflicts: the lanes of a request go in groups that read 128 bytes at most, and in each
// group a bank delivers one word of four bytes a cycle, to any number of lanes.
int bank_conflicts(const LaneAddresses& addresses);

// The sectors of a request, each once, in order.
std::vector<std::uint64_t> sectors_of(const LaneAddresses& addresses);

}  // namespace quire::ptx
