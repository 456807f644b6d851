#include "kernels/registry.h"

#include <charconv>
#include <stdexcept>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/machine/topology.h"
#include "kernels/gpu_devices.h"

namespace quire {
namespace {

constexpr std::string_view kCuda = "cuda";
constexpr std::string_view kNumbered = "cuda:";

int num_threads(const CpuOptions& options) {
  if (options.threads < 0) throw std::runtime_error("the number of compute threads cannot be negative");
  return options.threads > 0 ? options.threads : default_threads();
}

std::unique_ptr<Backend> create_cpu(const CpuOptions& options) {
  const int threads = num_threads(options);
  const CpuLevel& level = choose_cpu_level(options.isa);
  return make_cpu_backend({.kernels = level.table(), .threads = threads, .pin = options.pin});
}

// The GPU that a name means; none: no GPU.
std::optional<int> gpu_number(std::string_view device) {
  if (device == "auto" || device == kCuda) return 0;
  if (!device.starts_with(kNumbered)) return {};
  const std::string_view digits = device.substr(kNumbered.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

struct Choice {
  GpuOptions options;
  GpuProbe probe;
};

// Throws where the options name a GPU that is not there.
Choice choose_gpu(const BackendOptions& options) {
  Choice choice;
  const auto number = gpu_number(options.device);
  const bool is_parallel = options.tensor_parallel > 1;
  const std::string parallel = "backend.tensor_parallel is " + std::to_string(options.tensor_parallel) + ", and ";
  if (!number && is_parallel)
    throw std::runtime_error(parallel + "backend.device is cpu: set it to cuda, or backend.tensor_parallel to 1");
  if (!number) return choice;
  choice.options = {.number = *number,
                    .count = options.tensor_parallel,
                    .memory_share = options.cuda.memory,
                    .threads = num_threads(options.cpu),
                    .graphs = options.cuda.graphs};
  choice.probe = probe_gpu(choice.options);
  if (!choice.probe.memory && options.device != "auto")
    throw std::runtime_error("backend.device is \"" + options.device + "\", and " + choice.probe.absent);
  if (!choice.probe.memory && is_parallel) throw std::runtime_error(parallel + choice.probe.absent);
  for (int each = 1; each < options.tensor_parallel; ++each) {
    GpuOptions other = choice.options;
    other.number += each;
    GpuProbe probe = probe_gpu(other);
    if (!probe.memory) throw std::runtime_error(parallel + probe.absent);
    if (probe.memory->available < choice.probe.memory->available) choice.probe = std::move(probe);
  }
  return choice;
}

}  // namespace

std::vector<IsaLevel> cpu_isa_levels() {
  std::vector<IsaLevel> levels;
  for (const CpuLevel& level : cpu_levels())
    levels.push_back({std::string(level.name), level.supported()});
  return levels;
}

bool is_device_name(std::string_view name) {
  return name == "cpu" || gpu_number(name).has_value();
}

std::unique_ptr<Backend> create_backend(const BackendOptions& options) {
  if (!is_device_name(options.device))
    throw std::runtime_error("unknown device \"" + options.device + "\"; known are auto, cpu, cuda and cuda:N");
  choose_cpu_level(options.cpu.isa);  // a level that is not there is refused on every device
  const Choice choice = choose_gpu(options);
  return choice.probe.memory ? open_gpu(choice.options) : create_cpu(options.cpu);
}

std::optional<BackendMemory> own_memory(const BackendOptions& options) {
  return is_device_name(options.device) ? choose_gpu(options).probe.memory : std::nullopt;
}

}  // namespace quire
