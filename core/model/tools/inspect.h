// The text of `quire inspect`: the content of a model's files and the memory that serving them takes. Any thread.
#pragma once

#include <filesystem>
#include <string>

#include "core/model/tools/memory_plan.h"

namespace quire {

// What the text shows beside the model's description and the memory plan.
struct InspectOptions {
  bool metadata = false;    // every key
  bool tensors = false;     // every tensor; else their number and bytes by type
  std::string device = {};  // that is planned for; empty: the backend's own
};

// A tower's file is described as such. Else the model, the tower beside it, and the memory plan and identity on this
// backend and machine; where the model cannot be served or does not fit, the reason in the plan's place. drafter: a
// model that drafts for it, counted in the plan; empty: none. Throws StartupError where the files themselves cannot be
// read.
std::string inspect_model(const std::filesystem::path& path, const Backend& backend, const KvCacheOptions& options,
                          const ServingLimits& limits, const MachineMemory& machine, const InspectOptions& shown = {},
                          const std::filesystem::path& drafter = {});

// The same with all metadata and tensors, as a JSON object: path, format, bytes, metadata, tensors, model, tower, and
// plan and identity, or refusal. device: as of InspectOptions.
std::string inspect_model_as_json(const std::filesystem::path& path, const Backend& backend,
                                  const KvCacheOptions& options, const ServingLimits& limits,
                                  const MachineMemory& machine, const std::filesystem::path& drafter = {},
                                  const std::string& device = {});

// What a GPU of so much memory leaves to models by default, for a plan without that GPU.
MachineMemory planned_gpu(std::uint64_t bytes);

}  // namespace quire
