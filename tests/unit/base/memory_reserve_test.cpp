// Memory that the system refuses, in a child process with a limit of its address space.
#include "core/base/memory/sure_memory.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>

using namespace quire;

namespace {

constexpr std::size_t kBlockBytes = 2048;
constexpr std::size_t kMostBlocks = 100'000;

struct Block {
  Block* next;
  std::array<std::byte, kBlockBytes> bytes;
};

// Allocates small blocks until one is refused; takes no other memory.
std::size_t exhaust(Block*& blocks) {
  std::size_t count = 0;
  try {
    for (; count < kMostBlocks; ++count)
      blocks = new Block{blocks, {}};
  } catch (const std::bad_alloc&) {
  }
  return count;
}

void release(Block*& blocks) {
  while (blocks != nullptr) {
    Block* const next = blocks->next;
    delete blocks;
    blocks = next;
  }
}

// Returns 0 if the reserve worked.
int child() {
  MemoryReserve reserve;
  rlimit limit{};
  long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) return 10;
  std::fclose(file);
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(pages) * 4096 + (rlim_t{1} << 20);
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 11;
  // A large block is refused and leaves the reserve unchanged.
  try {
    const std::unique_ptr<char[]> large(new char[std::size_t{1} << 30]);
    return 12;
  } catch (const std::bad_alloc&) {
  }
  Block* blocks = nullptr;
  const std::size_t with_reserve = exhaust(blocks);
  release(blocks);
  reserve.refill();
  return with_reserve * kBlockBytes > (std::size_t{4} << 20) && with_reserve < kMostBlocks ? 0 : 13;
}

}  // namespace

TEST_CASE("where the system refuses memory, small blocks are available for a while") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // sanitizers take address space of their own
#endif
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
