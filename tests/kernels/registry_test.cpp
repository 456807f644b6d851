// The registry: the backends it makes, and its one-line errors.
#include <catch2/catch.hpp>
#include <stdexcept>

#include "kernels/cpu/machine/topology.h"
#include "kernels/registry.h"
#include "tests/support/temporary_folder.h"

namespace quire::test {
namespace {

std::string error_of(const BackendOptions& options) {
  try {
    create_backend(options);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the levels are listed in ascending order, scalar always supported") {
#if defined(__aarch64__)
  const std::vector<std::string> expected = {"scalar", "neon", "dotprod", "i8mm"};
#else
  const std::vector<std::string> expected = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "avx512amx"};
#endif
  std::vector<std::string> names;
  for (const IsaLevel& level : cpu_isa_levels())
    names.push_back(level.name);
  CHECK(names == expected);
  CHECK(cpu_isa_levels()[0].supported);
}

TEST_CASE("auto takes the highest supported level, a name takes that one") {
  std::string highest;
  for (const IsaLevel& level : cpu_isa_levels()) {
    BackendOptions options;
    options.cpu.isa = level.name;
    options.cpu.threads = 1;
    if (level.supported) {
      highest = level.name;
      CHECK(create_backend(options)->name() == "cpu/" + level.name);
    } else {
      CHECK_THAT(error_of(options), Catch::Contains("cannot run ISA level \"" + level.name + "\""));
      CHECK_THAT(error_of(options), Catch::Contains("scalar"));
    }
  }
  CHECK(create_backend({})->name() == "cpu/" + highest);
}

TEST_CASE("options that cannot be honoured are refused by name") {
  BackendOptions unknown_level;
  unknown_level.cpu.isa = "avx9";
  CHECK_THAT(error_of(unknown_level), Catch::Contains("avx9"));
  BackendOptions unknown_device;
  unknown_device.device = "abacus";
  CHECK_THAT(error_of(unknown_device), Catch::Contains("abacus"));
  BackendOptions no_threads;
  no_threads.cpu.threads = -1;
  CHECK_THAT(error_of(no_threads), Catch::Contains("threads"));
}

TEST_CASE("without a GPU the device auto is the processor, and cuda or cuda:N say what is missing") {
  for (const char* name : {"auto", "cpu", "cuda", "cuda:0", "cuda:15"})
    CHECK(is_device_name(name));
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999"})
    CHECK_FALSE(is_device_name(name));
  BackendOptions cuda;
  cuda.device = "cuda:1";
  CHECK_THAT(
      error_of(cuda),
      Catch::StartsWith("backend.device is \"cuda:1\", and this build has no CUDA backend: install the archive"));
  CHECK_FALSE(own_memory({}));
}

TEST_CASE("a cgroup's cpu.max gives whole processors") {
  CHECK(parse_cpu_max("200000 100000\n") == 2);
  CHECK(parse_cpu_max("150000 100000\n") == 1);
  CHECK(parse_cpu_max("50000 100000\n") == 1);
  CHECK_FALSE(parse_cpu_max("max 100000\n"));
  CHECK_FALSE(parse_cpu_max(""));
  CHECK_FALSE(parse_cpu_max("100000"));
  CHECK_FALSE(parse_cpu_max("-1 100000"));
  CHECK_FALSE(parse_cpu_max("100000 0"));
}

TEST_CASE("of two hyper-threads of a core one is counted") {
  const TemporaryFolder cpus;
  cpus.write("cpu0/topology/thread_siblings_list", "0,2\n");
  cpus.write("cpu1/topology/thread_siblings_list", "1,3\n");
  cpus.write("cpu2/topology/thread_siblings_list", "0,2\n");
  cpus.write("cpu3/topology/thread_siblings_list", "1,3\n");
  CHECK(one_per_core({0, 1, 2, 3}, cpus.path()) == std::vector<int>{0, 1});
  CHECK(one_per_core({2, 3}, cpus.path()) == std::vector<int>{2, 3});  // their siblings are not among our cores
  CHECK(one_per_core({1, 3, 7, 8}, cpus.path()) == std::vector<int>{1, 7, 8});
}

TEST_CASE("of big and little cores the big ones compute") {
  const TemporaryFolder cpus;
  cpus.write("cpu0/cpu_capacity", "250\n");
  cpus.write("cpu1/cpu_capacity", "250\n");
  cpus.write("cpu2/cpu_capacity", "512\n");
  cpus.write("cpu3/cpu_capacity", "1024\n");
  CHECK(fast_cores({0, 1, 2, 3}, cpus.path()) == std::vector<int>{2, 3});
  CHECK(fast_cores({0, 1}, cpus.path()) == std::vector<int>{0, 1});        // no faster core is among ours
  CHECK(fast_cores({2, 3, 9}, cpus.path()) == std::vector<int>{2, 3, 9});  // the speed of core 9 is unknown
  cpus.write("cpu4/cpu_capacity", "garbage\n");
  CHECK(fast_cores({0, 3, 4}, cpus.path()) == std::vector<int>{0, 3, 4});
}

TEST_CASE("there is at least one usable core and default thread") {
  CHECK(usable_cores().size() >= 1);
  CHECK(default_threads() >= 1);
  CHECK(default_threads() <= static_cast<int>(usable_cores().size()));
}

}  // namespace quire::test
