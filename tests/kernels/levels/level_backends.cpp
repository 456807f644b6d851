#include "tests/kernels/levels/level_backends.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/isa_levels.h"
#if defined(__x86_64__)
#include "tests/support/amx_tables.h"
#endif

namespace quire::test {

std::vector<int> thread_counts() {
  return {1, 2, 3};
}

std::vector<LevelBackend> level_backends(int threads) {
  std::vector<LevelBackend> out;
  for (const CpuLevel& level : cpu_levels()) {
    if (!level.supported()) continue;
    out.push_back(
        {std::string(level.name), make_cpu_backend({.kernels = level.table(), .threads = threads, .pin = false})});
  }
#if defined(__x86_64__)
  const auto add_table = [&](const char* name, const KernelTable& kernels) {
    out.push_back({name, make_cpu_backend({.kernels = &kernels, .threads = threads, .pin = false})});
  };
  // With AVX-VNNI the avx2 level is that variant, and the plain one would go untested.
  if (cpu_levels()[1].supported() && cpu_levels()[1].table() != &kAvx2Kernels) add_table("avx2 (plain)", kAvx2Kernels);
  add_table("amx (emulated)", amx_emulated_kernels());
  if (cpu_levels()[2].supported()) {
    add_table("avx512amx (emulated)", avx512amx_emulated_kernels());
    add_table("amx (emulated, avx512)", amx_emulated_avx512_kernels());
  }
#endif
  return out;
}

}  // namespace quire::test
