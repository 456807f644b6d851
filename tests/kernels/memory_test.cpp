// Memory of weights: side by side in huge pages, and there as long as someone holds it.
#include "kernels/cpu/memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace quire::test {
namespace {

// Whether huge pages were asked for where `address` is ("hg" of its area's flags).
bool wants_huge_pages(const std::byte* address) {
  std::ifstream areas("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(areas, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (std::istringstream text(line); text >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      is_here = begin <= at && at < end;
    }
    if (is_here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

bool has_huge_pages() {
  return std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
}

}  // namespace

TEST_CASE("Matrices smaller than a huge page lie side by side in areas of huge pages") {
  MemoryBlocks blocks;
  std::vector<SharedBytes> taken;
  // More than a block together.
  for (int i = 0; i < 60; ++i)
    taken.push_back(blocks.take(1'769'480));
  std::size_t num_beside = 0;
  for (std::size_t i = 1; i < taken.size(); ++i)
    num_beside += taken[i].get() == taken[i - 1].get() + 1'769'536 ? 1 : 0;  // the next multiple of 64
  CHECK(num_beside == 58);                                                   // all but the first of the second block
  for (const SharedBytes& bytes : taken) {
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.get()) % 64 == 0);
    if (has_huge_pages()) CHECK(wants_huge_pages(bytes.get()));
  }
}

TEST_CASE("Memory of a block is zeroed, belongs to one, and outlives the blocks") {
  std::vector<SharedBytes> taken;
  const std::size_t sizes[] = {1, 64, 3'000'000, 70'000'000, 100, 64'000'000};
  {
    MemoryBlocks blocks;
    for (const std::size_t size : sizes)
      taken.push_back(blocks.take(size));
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    std::byte* const bytes = taken[i].get();
    CHECK(std::all_of(bytes, bytes + sizes[i], [](std::byte b) { return b == std::byte{0}; }));
    std::fill(bytes, bytes + sizes[i], static_cast<std::byte>(i + 1));
  }
  taken.erase(taken.begin());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::byte* const bytes = taken[i].get();
    CHECK(std::all_of(bytes, bytes + sizes[i + 1], [&](std::byte b) { return b == static_cast<std::byte>(i + 2); }));
  }
}

}  // namespace quire::test
