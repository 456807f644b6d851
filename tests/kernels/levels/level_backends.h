// The backends that every operation test runs on: one per ISA level of this machine, with a given number of threads.
// One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire::test {

struct LevelBackend {
  std::string level;
  std::unique_ptr<Backend> backend;
};

std::vector<LevelBackend> level_backends(int threads);

// Numbers of threads that may divide an operation differently.
std::vector<int> thread_counts();

}  // namespace quire::test
