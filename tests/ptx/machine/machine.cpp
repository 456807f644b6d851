#include "tests/ptx/machine/machine.h"

#include <algorithm>

namespace quire::ptx {
namespace {

// Limit of the random number of instructions that a warp executes before another one may.
constexpr std::uint64_t kMostSteps = 400;

}  // namespace

Block::Block(const Function& function, const Launch& launch, std::span<const MemoryRange> memory,
             const RunOptions& options, LaunchCounts& counts)
    : function_(function), launch_(launch), memory_(memory), options_(options), counts_(counts) {
  if (launch.threads % kLanes != 0) throw PtxError("threads of a block that are no whole warps");
  if (static_cast<int>(launch.params.size()) != function.param_bytes)
    throw PtxError("arguments of " + std::to_string(launch.params.size()) + " bytes where the kernel takes " +
                   std::to_string(function.param_bytes));
}

bool Block::in_range(std::uint64_t address, int bytes) const {
  const auto after = std::ranges::upper_bound(memory_, address, {}, &MemoryRange::begin);
  return after != memory_.begin() && address + static_cast<std::uint64_t>(bytes) <= std::prev(after)->end;
}

InstructionCounts& Block::counts_of(const Instruction& in) {
  return counts_.of[static_cast<std::size_t>(&in - function_.instructions.data())];
}

void Block::count_access(const Instruction& in, Space space, const LaneAddresses& addresses) {
  if (space == Space::kShared) {
    counts_of(in).bank_conflicts += ptx::bank_conflicts(addresses);
  } else if (space == Space::kGlobal) {
    const std::vector<std::uint64_t> sectors = sectors_of(addresses);
    counts_of(in).sectors += static_cast<std::int64_t>(sectors.size());
    counts_.touched.insert(sectors.begin(), sectors.end());
  }
}

Warp* Block::choose(std::mt19937_64* random) {
  std::vector<Warp*> able;
  for (const auto& warp : warps_) {
    if (!warp->is_done() && !warp->is_at_barrier()) able.push_back(warp.get());
  }
  if (able.empty()) return nullptr;
  return able[random == nullptr ? 0 : (*random)() % able.size()];
}

void Block::release_barrier() {
  for (const auto& warp : warps_) {
    if (!warp->is_at_barrier())
      throw PtxError(function_.name + ": warp " + std::to_string(warp->number()) + " misses a barrier of the block");
  }
  for (const auto& warp : warps_)
    warp->pass_barrier();
}

void Block::run(std::int64_t x, std::int64_t y, std::mt19937_64* random) {
  x_ = x;
  y_ = y;
  shared_.assign(static_cast<std::size_t>(launch_.shared_bytes), std::byte{0x5a});
  written_.assign(shared_.size(), 0);
  warps_.clear();
  for (int number = 0; number < launch_.threads / kLanes; ++number)
    warps_.push_back(std::make_unique<Warp>(*this, number));
  while (!std::ranges::all_of(warps_, [](const auto& warp) { return warp->is_done(); })) {
    Warp* const warp = choose(random);
    if (warp == nullptr) {
      release_barrier();
    } else {
      const std::int64_t steps = random == nullptr ? 1 << 20 : static_cast<std::int64_t>((*random)() % kMostSteps) + 1;
      warp->run(steps, random);
    }
  }
}

LaunchCounts execute(const Function& function, const Launch& launch, std::span<const MemoryRange> memory,
                     const RunOptions& options) {
  LaunchCounts counts;
  counts.of.resize(function.instructions.size());
  Block block(function, launch, memory, options, counts);
  std::mt19937_64 random(options.seed);
  for (std::int64_t y = 0; y < launch.grid_y; ++y) {
    for (std::int64_t x = 0; x < launch.grid_x; ++x)
      block.run(x, y, options.seed == 0 ? nullptr : &random);
  }
  return counts;
}

}  // namespace quire::ptx
