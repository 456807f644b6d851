// The path of a model as an operator writes it. Stateless; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

// Throws StartupError where nothing is at the path, with what to do where it looks like a repository of Hugging Face.
void require_model_path(const std::filesystem::path& path);

// Messages' ends that say what a folder holds instead, and what to do: of a model's config.json or of its weights.
// Empty where it is nothing known.
std::string instead_of_config(const std::filesystem::path& directory);
std::string instead_of_weights(const std::filesystem::path& directory);

// The file of a tower (mmproj*.gguf) beside a GGUF file, or in a model's folder; empty: none.
std::filesystem::path find_mmproj(const std::filesystem::path& model);

}  // namespace quire
