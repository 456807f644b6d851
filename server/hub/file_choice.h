// Chooses the files of a repository that a model needs: one GGUF file with its shards, or a Hugging Face directory.
// Pure functions over the repository's paths; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace quire::hub {

struct ChosenFiles {
  std::vector<std::string> paths;  // files to download, in order
  std::string model;               // the file to serve, the first of its shards; empty: the directory itself
};

// `wanted`: a quantisation, compared without regard to case, a GGUF file's path or name, or "safetensors". Empty: the
// first of Q4_K_M, Q8_0, ... that exists, else the first GGUF file, else the directory. A GGUF model's tower for images
// (mmproj) comes last in the paths; importance matrices are left out unless `wanted` names them. The error lists the
// available choices.
Result<ChosenFiles> choose_files(const std::vector<std::string>& paths, std::string_view wanted);

// The quantisation in a GGUF file's name, such as "Q4_K_M"; empty: none.
std::string quantisation_of(std::string_view path);

// The models in these files, each by the `wanted` that selects it.
std::vector<std::string> choices_of(const std::vector<std::string>& paths);

}  // namespace quire::hub
