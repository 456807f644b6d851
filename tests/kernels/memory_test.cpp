// Memory of weights: side by side in huge pages, and there as long as someone holds it.
#include "kernels/cpu/machine/memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/huge_pages.h"

namespace quire::test {
TEST_CASE("Matrices smaller than a huge page lie side by side in areas of huge pages") {
  MemoryBlocks blocks;
  std::vector<SharedBytes> taken;
  // More than a block together.
  for (int i = 0; i < 60; ++i)
    taken.push_back(blocks.take(1'769'480));
  std::size_t num_beside = 0;
  for (std::size_t i = 1; i < taken.size(); ++i)
    num_beside += taken[i].get() == taken[i - 1].get() + 1'769'536 ? 1 : 0;  // the next multiple of 64
  CHECK(num_beside == 58);                                                   // all except the first of the second block
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
