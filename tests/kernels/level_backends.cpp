#include "tests/kernels/level_backends.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"

namespace quire::test {

std::vector<LevelBackend> level_backends(int threads) {
  std::vector<LevelBackend> out;
  for (const CpuLevel& level : cpu_levels()) {
    if (!level.supported()) continue;
    out.push_back(
        {std::string(level.name), make_cpu_backend({.kernels = level.table, .threads = threads, .pin = false})});
  }
  return out;
}

}  // namespace quire::test
