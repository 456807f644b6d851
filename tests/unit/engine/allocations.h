// Counts the calls of operator new and mmap in this program, on all threads. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

std::int64_t num_allocations();
// From now on every operator new throws, or none.
void fail_allocations(bool fails);
// The next operator new throws, once; or the one after `num_before` others.
void fail_next_allocation(std::int64_t num_before = 0);
// Takes that back; false where it has thrown already.
bool forget_failure();

}  // namespace quire::test
