// Counts the calls of operator new and mmap in this program, on all threads, and makes some of them fail. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

std::int64_t num_allocations();
// Makes every operator new throw from now on, or none.
void fail_allocations(bool fails);
// Allocations that fail_next_allocation() counts: all; those of threads in a Fallible scope; those of all threads
// except the caller's.
enum class FailsIn { kAll, kFallible, kOtherThreads };
// Makes one operator new throw: the next one, or the one after `num_before` others.
void fail_next_allocation(std::int64_t num_before = 0, FailsIn where = FailsIn::kAll);
// Excludes the calling thread from FailsIn::kOtherThreads from now on.
void exempt_this_thread();
// Cancels the failure; returns false if it has happened already.
bool forget_failure();

// Marks its thread's work as under test while it lives. Scopes do not nest.
class Fallible {
 public:
  Fallible();
  ~Fallible();
  Fallible(const Fallible&) = delete;
  Fallible& operator=(const Fallible&) = delete;
};

}  // namespace quire::test
