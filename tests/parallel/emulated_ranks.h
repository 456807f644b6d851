// Several emulated devices of one machine, as ranks of a model, and small models that they divide.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/layers/loaded_model.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/parallel/parallel_backend.h"

namespace quire::test {

// Heads and columns that two and four devices divide between blocks of 256.
std::shared_ptr<const LoadedModel> emulated_model(const std::string& shape, const std::string& types);

// Each device has a seed of its own; 0: none has one.
std::vector<gpu::EmulatedDeviceOptions> rank_options(int count, std::uint64_t seed);
std::unique_ptr<ParallelBackend> emulated_ranks(std::vector<gpu::EmulatedDeviceOptions> options);
std::unique_ptr<Backend> one_device(std::uint64_t seed = 1);

}  // namespace quire::test
