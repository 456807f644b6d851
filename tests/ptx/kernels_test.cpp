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

// Runs them and returns which kernels were compared.
std::set<std::string> compare(const KernelPrograms& programs, const std::vector<DeviceCase>& cases,
                              const RunOptions& options) {
  std::set<std::string> launched;
  for (const DeviceCase& test : cases) {
    auto owned = std::make_unique<ComparedDevice>(programs, options);
    const ComparedDevice& device = *owned;
    const auto backend = gpu::make_gpu_backend(std::move(owned), {.name = "cuda"});
    test.run(*backend);
    INFO(test.name);
    for (const std::string& difference : device.differences())
      FAIL_CHECK(difference);
    launched.insert(device.launched().begin(), device.launched().end());
  }
  return launched;
}

}  // namespace

TEST_CASE("the PTX of every kernel has the emulator's bits in the memory of the device", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  const std::set<std::string> launched = compare(programs, cases_with({""}), {});
  for (const std::string& kernel : ComparedDevice(programs, {}).kernel_names()) {
    INFO(kernel);
    CHECK(launched.contains(kernel));
  }
}

}  // namespace quire::test
