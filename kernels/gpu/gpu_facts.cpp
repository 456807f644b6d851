#include "kernels/gpu/gpu_facts.h"

namespace quire::gpu {
namespace {

std::string dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// 13000 is CUDA 13.0.
std::string version_text(int version) {
  return dotted(version / 1000, version % 1000 / 10);
}

std::string capability_text(int capability) {
  return dotted(capability / 10, capability % 10);
}

}  // namespace

std::string gpu_label(const GpuFacts& facts) {
  const std::string number = "GPU " + std::to_string(facts.number);
  return facts.name.empty() ? number : number + " (" + facts.name + ")";
}

std::string why_not(const GpuFacts& facts) {
  if (facts.driver_version == 0) return "this machine has no NVIDIA driver: install one, or set backend.device to cpu";
  if (facts.driver_version / 1000 < facts.needed_version / 1000)
    return "the NVIDIA driver supports CUDA " + version_text(facts.driver_version) + ", and this build needs CUDA " +
           version_text(facts.needed_version) + ": install a newer driver";
  if (facts.num_gpus == 0 && facts.error.empty()) return "the NVIDIA driver finds no GPU in this machine";
  if (facts.num_gpus == 0) return "the NVIDIA driver reports: " + facts.error;
  if (facts.number >= facts.num_gpus)
    return "this machine has " + std::to_string(facts.num_gpus) + (facts.num_gpus == 1 ? " GPU" : " GPUs") +
           ", of which the last is cuda:" + std::to_string(facts.num_gpus - 1);
  if (!facts.error.empty()) return gpu_label(facts) + " cannot be used: " + facts.error;
  if (facts.capability < kLeastCapability)
    return gpu_label(facts) + " has compute capability " + capability_text(facts.capability) + ", and " +
           capability_text(kLeastCapability) + " (Ampere) is the least";
  return {};
}

}  // namespace quire::gpu
