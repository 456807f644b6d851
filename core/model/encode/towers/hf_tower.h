// The tower of a Hugging Face directory under the keys and tensor names of an mmproj file, so that one reader serves
// both. Any thread. Sources: the configuration and processor classes of transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/model/formats/gguf/gguf.h"

namespace quire {

// Whether config.json describes a tower that is read. False where it cannot be read.
bool has_hf_tower(const std::filesystem::path& directory);

// Throws StartupError, one line: a key or a tensor is missing, or asks for what is not computed. `ignores_unknown`:
// keys that are not known and may change results are warned of.
std::shared_ptr<const GgufFile> open_hf_tower(const std::filesystem::path& directory, bool ignores_unknown = false);

// Path of a model's tower: an mmproj file beside it, or its own directory; empty: there is none.
std::filesystem::path find_tower(const std::filesystem::path& model);

enum class HfTowerClass : std::uint8_t { kQwen, kSiglip, kGemma4, kPixtral };

// The name of the tensor in mmproj files. Empty: the tensor is not the tower's. A tensor of the tower without such a
// name keeps its own, and the tower's reader refuses it.
std::string mmproj_name(HfTowerClass kind, const std::string& name);

}  // namespace quire
