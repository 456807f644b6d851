// What nvcc makes of each kernel, executed by the interpreter, has the emulator's bits: the operations that gpu_check
// runs, in lockstep and in other orders. Needs the texts of nvcc (run.sh).
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu_check/cases.h"
#include "tests/ptx/compared_device.h"

namespace quire::test {
namespace {

using ptx::ComparedDevice;
using ptx::KernelPrograms;
using ptx::RunOptions;

// The operations whose name one of the parts is in.
std::vector<DeviceCase> cases_with(std::initializer_list<std::string_view> parts) {
  std::vector<DeviceCase> out = device_cases();
  std::erase_if(out, [&](const DeviceCase& test) {
    return std::ranges::none_of(parts,
                                [&](std::string_view part) { return test.name.find(part) != std::string::npos; });
  });
  return out;
}

// Runs them and returns the bank conflicts of each kernel that was compared.
std::map<std::string, std::int64_t> compare(const KernelPrograms& programs, const std::vector<DeviceCase>& cases,
                                            const RunOptions& options) {
  std::map<std::string, std::int64_t> conflicts;
  for (const DeviceCase& test : cases) {
    std::vector<std::string> differences;
    auto owned = std::make_unique<ComparedDevice>(programs, options, &differences);
    const ComparedDevice& device = *owned;
    const auto backend = gpu::make_gpu_backend(std::move(owned), {.name = "cuda"});
    test.run(*backend);
    INFO(test.name);
    for (const std::string& difference : differences)
      FAIL_CHECK(difference);
    for (const auto& [kernel, count] : device.bank_conflicts())
      conflicts[kernel] += count;
  }
  return conflicts;
}

}  // namespace

TEST_CASE("the PTX of every kernel has the emulator's bits in all of the memory, and no bank conflict", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  const auto conflicts = compare(programs, cases_with({""}), {});
  for (const std::string& kernel : ComparedDevice(programs, {}, nullptr).kernel_names()) {
    INFO(kernel);
    const auto found = conflicts.find(kernel);
    REQUIRE(found != conflicts.end());
    CHECK(found->second == 0);
  }
}

// The kernels in which threads meet, or copy asynchronously.
TEST_CASE("the PTX of the kernels has the emulator's bits in other orders of lanes and warps", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  const auto cases = cases_with({"Q4_K, 8 rows", "Q6_K, 65 rows", "BF16, 20 rows", "Q8_0 of a norm", "norms",
                                 "graph operations, nonlinearity 0", "attention int8 3 heads of 24",
                                 "routing in groups", "states of the delta rule", "residual streams"});
  for (const std::uint64_t seed : {1U, 2U})
    compare(programs, cases, {.seed = seed, .early_copies = seed == 2});
}

}  // namespace quire::test
