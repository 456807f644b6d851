// MemoryReserve: address space that is released when the system refuses a small allocation, so that the end of a
// request that failed has the memory it needs; it keeps the pages of sure_memory.h too. One in a process, by the
// handler of operator new. Any thread.
#pragma once

namespace quire {

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
