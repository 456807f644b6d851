// Counts the calls of operator new and mmap in this program, on all threads, and makes some of them fail. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

std::int64_t num_allocations();
// From now on every operator new throws, or none.
void fail_allocations(bool fails);
// Which allocations fail_next_allocation() counts: all; those of threads that are in a Fallible scope; those of all
// threads but the one that calls it.
enum class FailsIn { kAll, kFallible, kOtherThreads };
// The next operator new throws, once; or the one after `num_before` others.
void fail_next_allocation(std::int64_t num_before = 0, FailsIn where = FailsIn::kAll);
// FailsIn::kOtherThreads leaves the calling thread out from now on.
void exempt_this_thread();
// Takes that back; false where it has thrown already.
bool forget_failure();

// While one lives, what its thread does is under test. They do not nest.
class Fallible {
 public:
  Fallible();
  ~Fallible();
  Fallible(const Fallible&) = delete;
  Fallible& operator=(const Fallible&) = delete;
};

}  // namespace quire::test
