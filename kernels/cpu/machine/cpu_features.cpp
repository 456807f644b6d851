#include "kernels/cpu/cpu_backend.h"

#include <stdexcept>

namespace quire {
namespace {

std::string supported_names() {
  std::string names;
  for (const CpuLevel& level : cpu_levels()) {
    if (level.supported()) names += (names.empty() ? "" : ", ") + std::string(level.name);
  }
  return names;
}

}  // namespace

const CpuLevel& choose_cpu_level(const std::string& name) {
  const CpuLevel* best = nullptr;
  for (const CpuLevel& level : cpu_levels()) {
    if (name == "auto" && level.supported()) best = &level;
    if (name == level.name) best = &level;
  }
  if (best == nullptr) {
    throw std::runtime_error("unknown ISA level \"" + name + "\"; this machine has " + supported_names());
  }
  if (!best->supported()) {
    throw std::runtime_error("this machine cannot run ISA level \"" + name + "\"; it has " + supported_names());
  }
  return *best;
}

}  // namespace quire
