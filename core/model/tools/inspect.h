// Texts about models: `quire inspect` shows the content of a model's files and the memory needed to serve them;
// models_page() is the page of deploy/docs. Any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/model/tools/memory_plan.h"

namespace quire {

// Sections of the text besides the model's description and the memory plan.
struct InspectOptions {
  bool metadata = false;    // every key
  bool tensors = false;     // every tensor; else their number and bytes by type
  std::string device = {};  // device of the plan; empty: the backend's own
};

// The model, with the memory plan and identity on this backend and machine; if the model cannot be served or does not
// fit, the reason replaces the plan. drafter: a model that drafts for it, counted in the plan; empty: none. Throws
// StartupError if the files themselves cannot be read.
std::string inspect_model(const std::filesystem::path& path, const Backend& backend, const KvCacheOptions& options,
                          const ServingLimits& limits, const MachineMemory& machine, const InspectOptions& shown = {},
                          const std::filesystem::path& drafter = {});

// All of this with all metadata and tensors, as a JSON object: path, format, bytes, metadata, tensors, model, and plan
// and identity, or refusal. device: see InspectOptions.
std::string inspect_model_as_json(const std::filesystem::path& path, const Backend& backend,
                                  const KvCacheOptions& options, const ServingLimits& limits,
                                  const MachineMemory& machine, const std::filesystem::path& drafter = {},
                                  const std::string& device = {});

// Memory that a GPU of this size leaves to models by default, for a plan without that GPU.
MachineMemory planned_gpu(std::uint64_t bytes);

// Whether the file is a tower's, which no model can be opened from. False where it cannot be read.
bool is_tower_file(const std::filesystem::path& path);

// A tower as text and as JSON: family, sizes, limits of images with the tokens that some take, and memory. Throws
// StartupError where the tower cannot be served.
std::string describe_tower(const std::filesystem::path& path);
nlohmann::json tower_to_json(const std::filesystem::path& path);

// The page that lists the supported models, made from the registry, the Hugging Face families and the synthetic shapes,
// so that it always agrees with the program.
std::string models_page();

}  // namespace quire
