// The PTX of each kernel, executed by the interpreter, gives the emulator's bits: for the operations that gpu_check
// runs, in lockstep and in other orders. Needs the texts of nvcc (run.sh).
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/kernels/sum_ranks.h"
#include "tests/gpu/device_arrays.h"
#include "tests/gpu_check/cases.h"
#include "tests/ptx/compared_device.h"

namespace quire::test {
namespace {

using ptx::ComparedDevice;
using ptx::KernelPrograms;
using ptx::RunOptions;

// The operations whose name contains one of the parts.
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
  const auto compare_on = [&](const DeviceCase& test, bool any_blocks) {
    std::vector<std::string> differences;
    auto owned = std::make_unique<ComparedDevice>(programs, options, &differences);
    const ComparedDevice& device = *owned;
    const auto backend =
        gpu::make_gpu_backend(std::move(owned), {.name = "cuda", .graphs = false, .any_blocks = any_blocks});
    test.run(*backend);
    INFO(test.name);
    for (const std::string& difference : differences)
      FAIL_CHECK(difference);
    for (const auto& [kernel, count] : device.bank_conflicts())
      conflicts[kernel] += count;
  };
  for (const DeviceCase& test : cases) {
    compare_on(test, false);
    // Runs the kernels of large products too.
    if (test.name.ends_with(", 1 rows") || test.name.ends_with(", 33 rows") || test.name.ends_with(", 130 rows"))
      compare_on(test, true);
  }
  return conflicts;
}

// Compares the sum of several devices' shares, which no operation of one backend launches.
std::int64_t compare_sum_of_ranks(const KernelPrograms& programs, const RunOptions& options) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 300;
  std::vector<std::string> differences;
  ComparedDevice device(programs, options, &differences);
  std::mt19937 random(8);
  std::vector<DeviceArray<float>> shares;
  for (int rank = 0; rank < gpu::kMostShares; ++rank)
    shares.emplace_back(device, random_floats(random, kRows * kCols));
  const DeviceMatrix out(device, random_matrix(random, kRows, kCols));
  for (const int num_ranks : {2, 3, gpu::kMostShares}) {
    gpu::SumRanksArgs args{.num_ranks = num_ranks, .cols = kCols};
    for (int rank = 0; rank < num_ranks; ++rank)
      args.shares[rank] = shares[static_cast<std::size_t>(rank)].data();
    args.out = out.view().data;
    args.out_stride = out.view().stride;
    args.accumulate = num_ranks > 2;
    device.launch(device.kernel("sum_ranks"), {.x = kRows}, args);
  }
  device.synchronize();
  for (const std::string& difference : differences)
    FAIL_CHECK(difference);
  return device.bank_conflicts().at("sum_ranks");
}

}  // namespace

TEST_CASE("the PTX of every kernel has the emulator's bits in all of the memory, and no bank conflict", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  auto conflicts = compare(programs, cases_with({""}), {});
  conflicts["sum_ranks"] = compare_sum_of_ranks(programs, {});
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
  const auto cases = cases_with({"Q4_K, 8 rows", "Q6_K, 33 rows", "BF16, 20 rows", "Q8_0 of a norm", "norms",
                                 "graph operations, nonlinearity 0", "attention int8 3 heads of 24", "draws and scores",
                                 "routing in groups", "states of the delta rule", "residual streams"});
  for (const std::uint64_t seed : {1U, 2U})
    compare(programs, cases, {.seed = seed, .early_copies = seed == 2});
}

}  // namespace quire::test
