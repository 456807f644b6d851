// The path of a model as an operator writes it. Stateless; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

// Throws StartupError if nothing is at the path, with advice if it looks like a Hugging Face repository.
void require_model_path(const std::filesystem::path& path);

// The end of a message: the folder's actual content, and advice, in place of a model's config.json or weights. Empty if
// the content is not recognised.
std::string instead_of_config(const std::filesystem::path& directory);
std::string instead_of_weights(const std::filesystem::path& directory);

// The file of a tower (mmproj*.gguf) beside a GGUF file, or in a model's folder; empty: none.
std::filesystem::path find_mmproj(const std::filesystem::path& model);

}  // namespace quire
