// ptxas's report of every kernel: no register is spilled, and the wanted number of blocks fits a multiprocessor of each
// architecture. Needs the table of nvcc (tests/gpu/nvcc.sh).
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "kernels/emulated/emulated_device.h"
#include "tests/ptx/kernel_programs.h"

namespace quire::test {
namespace {

// A multiprocessor in NVIDIA's table of compute capabilities; each has 65536 registers.
struct Architecture {
  const char* name;
  int shared_kib;
  int block_shared_kib;
  int threads;
};
constexpr Architecture kArchitectures[] = {{"80", 164, 163, 2048},  {"86", 100, 99, 1536},   {"89", 100, 99, 1536},
                                           {"90a", 228, 227, 2048}, {"100", 228, 227, 2048}, {"120", 100, 99, 1536}};

constexpr int kRegisters = 65536;
constexpr int kWarpRegisters = 256;    // unit of allocation
constexpr int kReservedShared = 1024;  // reserved by the system in each block

// Number of blocks that a multiprocessor should hold at once.
int wanted_blocks(const std::string& kernel, const Architecture& architecture) {
  if (kernel.starts_with("linear_wide") || kernel.ends_with(" wide")) return 1;
  // Stages of weights, or of K and V, for four warps: further blocks in shared memory hide memory's latency.
  if (kernel.starts_with("attend_tiles") && kernel.find(" 1 ") != std::string::npos)
    return architecture.shared_kib >= 200 ? 3 : 1;
  if (kernel.starts_with("linear_skinny") || kernel.starts_with("linear_row") || kernel.starts_with("linear_half") ||
      kernel.starts_with("attend_tiles"))
    return architecture.shared_kib >= 200 ? 2 : 1;
  if (kernel.starts_with("linear_f32") || kernel.starts_with("advance_state")) return 2;
  if (kernel.ends_with("_pick")) return 2;  // each drawn token takes one block
  return 4;
}

int fitting_blocks(const gpu::Kernel& kernel, const Architecture& architecture, int registers) {
  const int warps = kernel.threads / 32;
  const int of_warp = (registers * 32 + kWarpRegisters - 1) / kWarpRegisters * kWarpRegisters;
  const int by_registers = kRegisters / (of_warp * warps);
  const int by_shared = architecture.shared_kib * 1024 / (kernel.shared_bytes + kReservedShared);
  return std::min({by_registers, by_shared, architecture.threads / kernel.threads});
}

}  // namespace

TEST_CASE("no kernel spills registers, and the blocks that are wanted fit each architecture", "[.resources]") {
  const char* const path = std::getenv("QUIRE_RESOURCES");
  REQUIRE(path != nullptr);
  const gpu::EmulatedDevice device({});
  std::map<std::string, std::size_t> num_kernels;  // by architecture
  std::ifstream table(path);
  std::string name;
  int registers = 0;
  int spills = 0;
  std::string function;
  while (table >> name >> registers >> spills >> function) {
    const gpu::Kernel& kernel = device.kernel(ptx::kernel_of(function));
    const auto* const architecture = std::ranges::find(kArchitectures, name, &Architecture::name);
    INFO(kernel.name << " for " << name << ": " << registers << " registers, " << kernel.shared_bytes
                     << " bytes shared");
    REQUIRE(architecture != std::end(kArchitectures));
    ++num_kernels[name];
    CHECK(spills == 0);
    CHECK(kernel.shared_bytes <= architecture->block_shared_kib * 1024);
    CHECK(fitting_blocks(kernel, *architecture, registers) >= wanted_blocks(kernel.name, *architecture));
  }
  CHECK_FALSE(num_kernels.empty());
  for (const auto& [each, count] : num_kernels) {
    INFO(each);
    CHECK(count == device.kernels().size());
  }
}

}  // namespace quire::test
