#include "tests/ptx/machine/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/ptx/machine/machine.h"

namespace quire::ptx {

Warp::Warp(Block& block, int number) : block_(block), number_(number) {
  const Function& function = block.function();
  registers_.resize(static_cast<std::size_t>(function.num_registers));
  for (const Constant& constant : function.constants)
    lanes_of(constant.number).fill(constant.value);
  for (const auto& [name, reg] : function.specials) {
    LaneValues& values = lanes_of(reg);
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t index = static_cast<std::uint64_t>(number) * kLanes + lane;
      values[lane] = name == "%tid.x"     ? index
                     : name == "%laneid"  ? lane
                     : name == "%ntid.x"  ? static_cast<std::uint64_t>(block.launch().threads)
                     : name == "%ctaid.x" ? static_cast<std::uint64_t>(block.x())
                     : name == "%ctaid.y" ? static_cast<std::uint64_t>(block.y())
                                          : 0;
    }
  }
  local_.resize(static_cast<std::size_t>(function.local_bytes * kLanes));
  is_scattered_ = block.options().seed != 0;
  if (!is_scattered_) {
    groups_.push_back({0, ~0U});
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      groups_.push_back({0, 1U << lane});
  }
}

void Warp::fail(const Instruction& in, std::size_t lane, const std::string& what) const {
  throw PtxError(block_.function().name + ", line " + std::to_string(in.line) + " (" + in.text + "), block (" +
                 std::to_string(block_.x()) + ", " + std::to_string(block_.y()) + "), warp " + std::to_string(number_) +
                 " lane " + std::to_string(lane) + ": " + what);
}

void Warp::fail_to_meet() const {
  for (const Group& group : groups_) {
    const Instruction& in = block_.function().instructions[static_cast<std::size_t>(group.at)];
    fail(in, static_cast<std::size_t>(std::countr_zero(group.lanes)), "other lanes do not come here");
  }
  throw PtxError("a warp without lanes");
}

std::uint32_t Warp::lanes_at(int at) const {
  std::uint32_t lanes = 0;
  for (const Group& group : groups_)
    lanes |= group.at == at ? group.lanes : 0;
  return lanes;
}

std::uint32_t Warp::guarded(const Instruction& in, std::uint32_t lanes) const {
  if (in.guard < 0) return lanes;
  const LaneValues& values = registers_[static_cast<std::size_t>(in.guard)];
  std::uint32_t out = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    out |= (values[lane] != 0) != in.guard_negated ? 1U << lane : 0;
  return out & lanes;
}

std::uint32_t Warp::needed(const Instruction& in, std::uint32_t lanes) const {
  if (in.member_mask < 0) return ~0U;
  const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
  return static_cast<std::uint32_t>(registers_[static_cast<std::size_t>(in.member_mask)][lane]);
}

void Warp::merge() {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (std::size_t j = groups_.size() - 1; j > i; --j) {
      if (groups_[i].at != groups_[j].at) continue;
      groups_[i].lanes |= groups_[j].lanes;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

// All lanes at an instruction execute it together.
void Warp::meet(const Instruction& in, int at) {
  ++block_.counts_of(in).executed;
  const std::uint32_t lanes = lanes_at(at);
  if (in.flow == Flow::kBlockBarrier) {
    is_at_barrier_ = true;
  } else {
    in.run(*this, in, lanes);
  }
  for (Group& group : groups_)
    group.at += group.at == at ? 1 : 0;
}

void Warp::branch(const Instruction& in, std::size_t number) {
  Group& group = groups_[number];
  const std::uint32_t taken = guarded(in, group.lanes);
  const std::uint32_t left = group.lanes & ~taken;
  const bool exits = in.flow == Flow::kExit;
  const int next = group.at + 1;
  if (left == 0 && !exits) {
    group.at = in.target;
  } else if (left == 0) {
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(number));
  } else {
    group = {next, left};
    if (taken != 0 && !exits) groups_.push_back({in.target, taken});
  }
}

// Returns false if other lanes have to come first.
bool Warp::try_group(std::size_t number, bool lockstep) {
  const Group group = groups_[number];
  const Instruction& in = block_.function().instructions[static_cast<std::size_t>(group.at)];
  if (in.flow == Flow::kCollective || in.flow == Flow::kBlockBarrier) {
    const std::uint32_t wanted = needed(in, group.lanes);
    if ((lanes_at(group.at) & wanted) != wanted) return false;
    meet(in, group.at);
  } else {
    ++block_.counts_of(in).executed;
    if (in.flow == Flow::kNext) {
      in.run(*this, in, guarded(in, group.lanes));
      ++groups_[number].at;
    } else {
      branch(in, number);
    }
  }
  if (lockstep && groups_.size() > 1) merge();
  return true;
}

// In lockstep the lanes furthest behind go first, so that they come together where branches end.
bool Warp::step(std::mt19937_64* random) {
  if (groups_.size() == 1) return try_group(0, true);
  if (is_scattered_) {
    if (current_ < groups_.size() && try_group(current_, false)) return true;
    const std::size_t first = (*random)() % groups_.size();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      current_ = (first + i) % groups_.size();
      if (try_group(current_, false)) return true;
    }
    return false;
  }
  std::ranges::sort(groups_, {}, &Group::at);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (try_group(i, true)) return true;
  }
  return false;
}

void Warp::run(std::int64_t most, std::mt19937_64* random) {
  for (std::int64_t i = 0; i < most && !is_at_barrier_ && !groups_.empty(); ++i) {
    if (!step(random)) fail_to_meet();
  }
}

std::byte* Warp::shared_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane, bool writes) {
  const std::uint64_t offset = address - kSharedBase;
  const auto size = static_cast<std::uint64_t>(bytes);
  const std::span<std::byte> shared = block_.shared();
  if (address < kSharedBase || offset + size > shared.size())
    fail(in, lane, (writes ? "writes beyond shared memory" : "reads beyond shared memory"));
  std::uint8_t* const written = block_.written().data() + offset;
  if (writes) {
    std::fill_n(written, size, std::uint8_t{1});
  } else if (const void* unwritten = std::memchr(written, 0, size); unwritten != nullptr) {
    const auto byte = offset + static_cast<std::uint64_t>(static_cast<const std::uint8_t*>(unwritten) - written);
    fail(in, lane, "reads shared memory that nothing wrote, byte " + std::to_string(byte));
  }
  return shared.data() + offset;
}

std::byte* Warp::read_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane) {
  const auto size = static_cast<std::uint64_t>(bytes);
  switch (in.space) {
    case Space::kShared: return shared_at(in, address, bytes, lane, false);
    case Space::kLocal: return write_at(in, address, bytes, lane);
    case Space::kParam: {
      const std::span<const std::byte> params = block_.launch().params;
      if (address > params.size() || size > params.size() - address) fail(in, lane, "reads beyond the arguments");
      return const_cast<std::byte*>(params.data()) + address;
    }
    default:
      if (!block_.in_range(address, bytes)) fail(in, lane, "reads outside of device memory");
      return std::bit_cast<std::byte*>(address);
  }
}

std::byte* Warp::write_at(const Instruction& in, std::uint64_t address, int bytes, std::size_t lane) {
  const auto size = static_cast<std::uint64_t>(bytes);
  if (in.space == Space::kShared) return shared_at(in, address, bytes, lane, true);
  if (in.space == Space::kLocal) {
    const auto mine = static_cast<std::uint64_t>(block_.function().local_bytes);
    if (address > mine || size > mine - address) fail(in, lane, "leaves its local memory");
    return local_.data() + lane * mine + address;
  }
  if (!block_.in_range(address, bytes)) fail(in, lane, "writes outside of device memory");
  return std::bit_cast<std::byte*>(address);
}

void Warp::copy_async(const Instruction& in, std::uint64_t to, std::uint64_t from, int bytes, std::size_t lane) {
  if (to % static_cast<std::uint64_t>(bytes) != 0 || from % static_cast<std::uint64_t>(bytes) != 0)
    fail(in, lane, "copies between addresses that are not aligned");
  if (!block_.in_range(from, bytes)) fail(in, lane, "copies from outside of device memory");
  const std::uint64_t offset = to - kSharedBase;
  if (to < kSharedBase || offset + static_cast<std::uint64_t>(bytes) > block_.shared().size())
    fail(in, lane, "copies to what is not shared memory");
  copies_[lane].push_back({to, from, bytes, num_commits_[lane]});
  if (!block_.options().early_copies) return;
  const AsyncCopy copy = copies_[lane].back();
  copies_[lane].pop_back();
  std::memcpy(shared_at(in, copy.to, bytes, lane, true), std::bit_cast<const std::byte*>(from),
              static_cast<std::size_t>(bytes));
}

void Warp::wait_copies(const Instruction& in, int left, std::size_t lane) {
  std::vector<AsyncCopy>& copies = copies_[lane];
  const int landed = num_commits_[lane] - left;
  for (const AsyncCopy& copy : copies) {
    if (copy.commit >= landed) continue;
    std::memcpy(shared_at(in, copy.to, copy.bytes, lane, true), std::bit_cast<const std::byte*>(copy.from),
                static_cast<std::size_t>(copy.bytes));
  }
  std::erase_if(copies, [landed](const AsyncCopy& copy) { return copy.commit < landed; });
}

}  // namespace quire::ptx
