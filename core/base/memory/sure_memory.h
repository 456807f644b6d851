// Memory for work that must not fail, such as the end of a JSON value or of a failed request: pages that are kept for
// it, and address space that is released when the system refuses a small allocation. Any thread.
#pragma once

#include <cstddef>

namespace quire {

inline constexpr std::size_t kSureBytes = std::size_t{32} << 20;

// Keeps kSureBytes of address space until the process ends. Before this call allocate_surely() can only wait.
void keep_sure_memory();

// Allocates from the C library, or if that fails from the kept pages; waits for one if all are taken. Never null.
void* allocate_surely(std::size_t bytes) noexcept;
void release_surely(void* memory) noexcept;

// Address space that the handler of operator new releases when the system refuses a small allocation, so that a request
// can fail and end in order; it keeps the sure pages too. One in a process.
class MemoryReserve {
 public:
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Reserves the released space again, as far as the system allows.
  void refill() noexcept;
};

}  // namespace quire
