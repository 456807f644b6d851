// A build without CUDA.
#include "kernels/device_error.h"
#include "kernels/gpu_devices.h"

namespace quire {
namespace {

constexpr const char* kAbsent =
    "this build has no CUDA backend: install the archive with -cuda in its name, or build with make build-cuda";

}  // namespace

GpuProbe probe_gpu(const GpuOptions& /*options*/) {
  return {.memory = {}, .absent = kAbsent};
}

std::unique_ptr<Backend> open_gpu(const GpuOptions& /*options*/) {
  throw DeviceError(kAbsent);
}

}  // namespace quire
