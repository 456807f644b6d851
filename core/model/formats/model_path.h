// The path of a model as an operator writes it. Stateless; any thread.
#pragma once

#include <filesystem>

namespace quire {

// Throws StartupError where nothing is at the path, with what to do where it looks like a repository of Hugging Face.
void require_model_path(const std::filesystem::path& path);

}  // namespace quire
