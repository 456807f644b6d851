// Ranks on the processor: the parts of a model without devices, so that many families can be cut in a test.
#pragma once

#include <memory>

#include "kernels/parallel/parallel_backend.h"

namespace quire::test {

std::unique_ptr<Backend> host_backend();
std::unique_ptr<ParallelBackend> host_ranks(int num_ranks);

}  // namespace quire::test
