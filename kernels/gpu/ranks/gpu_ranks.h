// A backend for each of several devices, which compute one model together: shares of products travel by copies between
// devices. Engine thread only, but for what ParallelBackend::run() calls.
#pragma once

#include <memory>
#include <vector>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/parallel/parallel_backend.h"

namespace quire::gpu {

// Makes a backend of at most kMostRanks devices of one kind, all of which can be copied from.
std::unique_ptr<ParallelBackend> make_gpu_ranks(std::vector<std::unique_ptr<Device>> devices,
                                                const GpuBackendOptions& options);

}  // namespace quire::gpu
