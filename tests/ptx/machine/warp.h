// Warp: 32 lanes with their registers, program counters and asynchronous copies. Lanes at the same instruction run
// together (lockstep, for counts), or each runs alone until it has to meet others (scattered). One thread. Invariant:
// an instruction at which lanes must meet is executed once all of them are there.
#pragma once

#include <array>
#include <random>
#include <vector>

#include "tests/ptx/machine/program.h"

namespace quire::ptx {

class Block;

using LaneValues = std::array<std::uint64_t, kLanes>;

class Warp {
 public:
  Warp(Block& block, int number);

  // Executes at most `most` instructions; fewer if it has to wait or is done. random: null for lockstep.
  void run(std::int64_t most, std::mt19937_64* random);

  bool is_done() const { return groups_.empty(); }
  bool is_at_barrier() const { return is_at_barrier_; }
  void pass_barrier() { is_at_barrier_ = false; }
  int number() const { return number_; }

  // The warp's state that instructions use.
  Block& block() { return block_; }
  LaneValues& lanes_of(int reg) { return registers_[static_cast<std::size_t>(reg)]; }
  // Address in the process of a checked access to memory.
  std::byte* read_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane);
  std::byte* write_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane);
  // Copies up to sixteen bytes, which arrive when they are waited for.
  void copy_async(const Instruction& in, std::uint64_t to, std::uint64_t from, int bytes, std::size_t lane);
  void commit_copies(std::size_t lane) { ++num_commits_[lane]; }
  void wait_copies(const Instruction& in, int left, std::size_t lane);
  [[noreturn]] void fail(const Instruction& in, std::size_t lane, const std::string& what) const;

 private:
  struct Group {
    int at;  // instruction
    std::uint32_t lanes;
  };
  struct AsyncCopy {
    std::uint64_t to;
    std::uint64_t from;
    int bytes;
    int commit;
  };

  bool step(std::mt19937_64* random);
  bool try_group(std::size_t number, bool lockstep);
  std::uint32_t lanes_at(int at) const;
  std::uint32_t guarded(const Instruction& in, std::uint32_t lanes) const;
  std::uint32_t needed(const Instruction& in, std::uint32_t lanes) const;
  void meet(const Instruction& in, int at);
  void branch(const Instruction& in, std::size_t number);
  void merge();
  [[noreturn]] void fail_to_meet() const;
  std::byte* shared_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane, bool writes);

  Block& block_;
  int number_;
  std::vector<LaneValues> registers_;
  std::vector<std::byte> local_;  // [lane][bytes]
  std::vector<Group> groups_;     // groups of lanes that have not exited
  std::size_t current_ = 0;       // the group whose turn it is when scattered
  bool is_scattered_ = false;
  bool is_at_barrier_ = false;
  std::array<std::vector<AsyncCopy>, kLanes> copies_;
  std::array<int, kLanes> num_commits_{};
};

}  // namespace quire::ptx
