// Counts the calls of operator new and mmap in this program, on all threads. Any thread.
#pragma once

#include <cstdint>

namespace quire::test {

std::int64_t num_allocations();
// From now on every operator new throws, or none.
void fail_allocations(bool fails);
// The next operator new throws, once.
void fail_next_allocation();

}  // namespace quire::test
