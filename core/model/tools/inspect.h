// The text of `quire inspect`: what a model's files hold and what serving them would take. Any thread.
#pragma once

#include <filesystem>
#include <string>

#include "core/model/memory_plan.h"

namespace quire {

// Metadata, tensors, and the memory plan on this backend and machine; where the model cannot be served or does not fit,
// the reason in the plan's place. Throws StartupError where the files themselves cannot be read.
std::string inspect_model(const std::filesystem::path& path, const Backend& backend, const KvCacheOptions& options,
                          const ServingLimits& limits, const MachineMemory& machine);

}  // namespace quire
