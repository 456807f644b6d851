// The Backend over a Device: operations are enqueued on the compute stream in the order in which they are called, and
// views are addresses of the device. Engine thread only. Errors of the device surface in synchronize(), as DeviceError.
// Invariant (batch invariance): as Backend's. The arithmetic has a version in name(): packed caches and fingerprints of
// stored blocks depend on it.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/device_step_bytes.h"
#include "kernels/gpu/device/gathering_device.h"

namespace quire::gpu {

struct GpuBackendOptions {
  std::string name = "cuda";
  int threads = 1;                            // host threads of parallel_for and of loading
  bool graphs = true;                         // gathers launches and turns repeated ones into graphs; false: one by one
  std::size_t partial_bytes = kPartialBytes;  // memory of attention's partitions (GpuAttention)
  std::size_t loading_bytes = kLoadingPartBytes;  // see WeightUploads
  bool any_blocks = false;                        // see GpuLinearRunner::Options
};

std::unique_ptr<Backend> make_gpu_backend(std::unique_ptr<Device> device, const GpuBackendOptions& options);
// Makes a backend over a device that others know too.
std::unique_ptr<Backend> make_gpu_backend(std::unique_ptr<GatheringDevice> device, const GpuBackendOptions& options);

}  // namespace quire::gpu
