// Under a sanitizer, whose operator new is its own: nothing is counted.
#include "tests/unit/engine/allocations.h"

namespace quire::test {

std::int64_t num_allocations() {
  return 0;
}

}  // namespace quire::test
