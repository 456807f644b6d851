#include "kernels/registry.h"

#include <stdexcept>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/topology.h"

namespace quire {
namespace {

std::unique_ptr<Backend> create_cpu(const CpuOptions& options) {
  if (options.threads < 0) throw std::runtime_error("the number of compute threads cannot be negative");
  const CpuLevel& level = choose_cpu_level(options.isa);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  return make_cpu_backend({.kernels = level.table(), .threads = threads, .pin = options.pin});
}

}  // namespace

std::vector<IsaLevel> cpu_isa_levels() {
  std::vector<IsaLevel> levels;
  for (const CpuLevel& level : cpu_levels())
    levels.push_back({std::string(level.name), level.supported()});
  return levels;
}

std::unique_ptr<Backend> create_backend(const BackendOptions& options) {
  if (options.device == "auto" || options.device == "cpu") return create_cpu(options.cpu);
  if (options.device == "cuda")
    throw std::runtime_error("this build has no CUDA backend; device must be \"auto\" or \"cpu\"");
  throw std::runtime_error("unknown device \"" + options.device + "\"; known are auto, cpu, cuda");
}

}  // namespace quire
