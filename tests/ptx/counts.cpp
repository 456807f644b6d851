#include "tests/ptx/counts.h"

#include <algorithm>
#include <numeric>

namespace quire::ptx {
namespace {

constexpr int kBanks = 32;
constexpr int kWordBytes = 4;
constexpr int kCycleBytes = kBanks * kWordBytes;

// The most different words that one bank has to deliver to the lanes [begin, end).
int cycles_of(const LaneAddresses& addresses, int begin, int end) {
  std::vector<std::uint64_t> words;
  for (int lane = begin; lane < end; ++lane) {
    if ((addresses.lanes >> lane & 1U) == 0) continue;
    const std::uint64_t first = addresses.of[static_cast<std::size_t>(lane)];
    for (std::uint64_t at = first / kWordBytes; at * kWordBytes < first + static_cast<std::uint64_t>(addresses.bytes);
         ++at)
      words.push_back(at);
  }
  std::ranges::sort(words);
  words.erase(std::ranges::unique(words).begin(), words.end());
  std::array<int, kBanks> of_bank{};
  for (const std::uint64_t word : words)
    ++of_bank[word % kBanks];
  return *std::ranges::max_element(of_bank);
}

}  // namespace

int bank_conflicts(const LaneAddresses& addresses) {
  const int lanes_at_once = std::min(kLanes, kCycleBytes / std::max(addresses.bytes, kWordBytes));
  int conflicts = 0;
  for (int lane = 0; lane < kLanes; lane += lanes_at_once)
    conflicts += std::max(0, cycles_of(addresses, lane, lane + lanes_at_once) - 1);
  return conflicts;
}

std::vector<std::uint64_t> sectors_of(const LaneAddresses& addresses) {
  std::vector<std::uint64_t> sectors;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((addresses.lanes >> lane & 1U) == 0) continue;
    const std::uint64_t first = addresses.of[static_cast<std::size_t>(lane)];
    const std::uint64_t last = (first + static_cast<std::uint64_t>(addresses.bytes) - 1) / kSectorBytes;
    for (std::uint64_t sector = first / kSectorBytes; sector <= last; ++sector) {
      if (sectors.empty() || sectors.back() != sector) sectors.push_back(sector);
    }
  }
  std::ranges::sort(sectors);
  sectors.erase(std::ranges::unique(sectors).begin(), sectors.end());
  return sectors;
}

std::int64_t LaunchCounts::executed(const Function& function,
                                    const std::function<bool(const Instruction&)>& counts) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < of.size(); ++i)
    sum += counts(function.instructions[i]) ? of[i].executed : 0;
  return sum;
}

std::int64_t LaunchCounts::executed(const Function& function, Kind kind) const {
  return executed(function, [kind](const Instruction& in) { return in.kind == kind; });
}

std::int64_t LaunchCounts::bank_conflicts() const {
  return std::accumulate(of.begin(), of.end(), std::int64_t{0},
                         [](std::int64_t sum, const InstructionCounts& c) { return sum + c.bank_conflicts; });
}

}  // namespace quire::ptx
