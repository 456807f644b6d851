// Printed results of the kernel benchmark.
#include "server/cli/bench/kernel_bench.h"
#include "core/base/json/json.h"

#include <catch2/catch.hpp>

#include "core/base/result.h"

namespace quire::bench {
namespace {

MachineLimits made_up_limits() {
  MachineLimits limits;
  limits.level = "avx2";
  limits.threads = 2;
  limits.reads = {{1000, 200.0}, {1000000, 40.0}};
  limits.rates = {{"fp32", 100.0}, {"int8", 400.0}};
  for (int type = 0; type < 11; ++type)
    limits.multiplies_with.push_back(type < 3 ? "fp32" : "int8");
  return limits;
}

KernelReport made_up_report() {
  KernelRow row;
  row.level = "avx2";
  row.operation = "linear";
  row.type = "Q8_0";
  row.shape = "64x256";
  row.rows = 1;
  row.microseconds = 12.5;
  row.memory_bound = true;
  row.percent_of_limit = 83.0;
  return {{made_up_limits()}, {row}};
}

}  // namespace

TEST_CASE("A machine's limits are looked up by working set and type of weights") {
  const MachineLimits limits = made_up_limits();
  CHECK(limits.read_rate(500) == 200.0);
  CHECK(limits.read_rate(1000) == 200.0);
  CHECK(limits.read_rate(1001) == 40.0);
  CHECK(limits.read_rate(1 << 30) == 40.0);
  CHECK(limits.multiply_rate(DType::kF16) == 100.0);
  CHECK(limits.multiply_rate(DType::kQ4_K) == 400.0);
}

TEST_CASE("The kernel benchmark's table and JSON tell limits and operations") {
  const std::string table = to_table(made_up_report());
  CHECK_THAT(table, Catch::Contains("avx2, 2 threads") && Catch::Contains("int8 400") &&
                        Catch::Contains("83 of reading") && Catch::Contains("64x256"));
  const Json json = to_json(made_up_report());
  CHECK(json["limits"][0]["giga_operations_per_second"]["int8"] == 400.0);
  CHECK(json["limits"][0]["reads"][1]["bytes"] == 1000000);
  CHECK(json["operations"][0]["bound_by"] == "reading");
  CHECK(json["operations"][0]["percent_of_limit"] == 83.0);
}

TEST_CASE("The kernel benchmark refuses what there is not, by name, before it measures") {
  const auto refused = [](KernelBenchOptions options) -> std::string {
    try {
      run_kernel_bench(options, [](const std::string&) { FAIL("it measures"); });
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  };
  KernelBenchOptions type;
  type.types = {"Q3_X"};
  CHECK_THAT(refused(type), Catch::Contains("Q3_X"));
  KernelBenchOptions level;
  level.levels = {"sse9"};
  CHECK_THAT(refused(level), Catch::Contains("sse9"));
  for (const char* text : {"8192", "8192x", "x2048", "64x100", "-1x256", "64x256x2"}) {
    KernelBenchOptions shape;
    shape.shapes = {text};
    CHECK_THAT(refused(shape), Catch::Contains(text));
  }
}

}  // namespace quire::bench
