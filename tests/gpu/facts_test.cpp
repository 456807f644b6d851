// A GPU that cannot be used gives one line that names what is missing.
#include <catch2/catch.hpp>

#include "kernels/gpu/gpu_facts.h"

namespace quire::test {

using gpu::GpuFacts;

TEST_CASE("a GPU that can be used has no reason against it") {
  CHECK(gpu::why_not({.driver_version = 13000, .needed_version = 13000, .num_gpus = 1, .capability = 90}).empty());
  CHECK(gpu::why_not({.driver_version = 14020, .needed_version = 13000, .num_gpus = 2, .number = 1, .capability = 80})
            .empty());
  // A driver runs code from a newer toolkit of its major version.
  CHECK(gpu::why_not({.driver_version = 13000, .needed_version = 13010, .num_gpus = 1, .capability = 120}).empty());
}

TEST_CASE("no driver, an old driver, no GPU, too few GPUs, an old GPU and a broken one are one line each") {
  const auto reason = [](GpuFacts facts) {
    facts.needed_version = 13000;
    return gpu::why_not(facts);
  };
  CHECK(reason({}) == "this machine has no NVIDIA driver: install one, or set backend.device to cpu");
  CHECK(reason({.driver_version = 12040, .error = "CUDA driver version is insufficient"}) ==
        "the NVIDIA driver supports CUDA 12.4, and this build needs CUDA 13.0: install a newer driver");
  CHECK(reason({.driver_version = 13000}) == "the NVIDIA driver finds no GPU in this machine");
  CHECK(reason({.driver_version = 13000, .error = "initialization error"}) ==
        "the NVIDIA driver reports: initialization error");
  CHECK(reason({.driver_version = 13000, .num_gpus = 2, .number = 5}) ==
        "this machine has 2 GPUs, of which the last is cuda:1");
  CHECK(reason({.driver_version = 13000, .num_gpus = 1, .name = "Tesla T4", .capability = 75}) ==
        "GPU 0 (Tesla T4) has compute capability 7.5, and 8.0 (Ampere) is the least");
  CHECK(reason({.driver_version = 13000, .num_gpus = 1, .name = "NVIDIA H200", .error = "device busy"}) ==
        "GPU 0 (NVIDIA H200) cannot be used: device busy");
}

}  // namespace quire::test
