// gpu_check: compares a device with the emulator, operation by operation, to the bit or as a case allows, and measures
// it.
//   gpu_check bits [PART]    every case whose name contains PART; exit 1 where one differs
//   gpu_check speed [PART]   figures of the device
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu_check/cases.h"
#include "tests/gpu_check/speed.h"
#include "tests/gpu_check/target.h"

namespace quire::test {
namespace {

using Results = std::vector<std::vector<float>>;

// Runs each case on an emulated device of its own, on as many threads as processors.
Results emulated_results(const std::vector<DeviceCase>& cases) {
  Results out(cases.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      const auto backend =
          gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(gpu::EmulatedDeviceOptions{}), {});
      out[i] = cases[i].run(*backend);
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  threads.clear();
  return out;
}

// Prints where they differ.
bool equal(const DeviceCase& test, const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() == expected.size() && std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0)
    return true;
  std::size_t different = 0;
  double worst = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    different += std::memcmp(&got[i], &expected[i], sizeof(float)) != 0 ? 1U : 0U;
    const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
  }
  if (test.tolerance > 0.0 && got.size() == expected.size() && worst <= test.tolerance * largest) return true;
  std::printf("DIFFERS %s: %zu of %zu values, by at most %g (largest value %g)\n", test.name.c_str(), different,
              expected.size(), worst, largest);
  return false;
}

int compare(std::string_view part) {
  std::vector<DeviceCase> cases = device_cases();
  std::erase_if(cases, [&](const DeviceCase& test) { return test.name.find(part) == std::string::npos; });
  const auto backend = gpu::make_gpu_backend(target_device(), {.name = "cuda"});
  const auto as_large = gpu::make_gpu_backend(target_device(), {.name = "cuda", .any_blocks = true});
  const Results expected = emulated_results(cases);
  std::size_t num_equal = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    bool is_equal = equal(cases[i], cases[i].run(*backend), expected[i]);
    // The kernels of large products have the same bits.
    if (cases[i].name.starts_with("linear")) is_equal &= equal(cases[i], cases[i].run(*as_large), expected[i]);
    num_equal += is_equal ? 1U : 0U;
  }
  std::printf("%zu of %zu cases agree with the emulator\n", num_equal, cases.size());
  return num_equal == cases.size() && !cases.empty() ? 0 : 1;
}

int run(std::string_view what, std::string_view part) {
  if (what == "bits") return compare(part);
  if (what != "speed") {
    std::fprintf(stderr, "usage: gpu_check bits|speed [PART]\n");
    return 2;
  }
  auto device = target_device();
  std::printf("%s, %zu MiB, of which %zu MiB are free\n", device->name().c_str(), device->total_memory() >> 20,
              device->free_memory() >> 20);
  measure(std::move(device), part);
  return 0;
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  try {
    return quire::test::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const quire::DeviceError& error) {
    std::fprintf(stderr, "gpu_check: %s\n", error.what());
    return 2;
  }
}
