// Names of a tower's tensors in Hugging Face directories and in mmproj files. Immutable facts; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

enum class HfTowerClass : std::uint8_t { kQwen, kSiglip, kGemma4, kPixtral };

// The name that an mmproj file gives the tensor. Empty: it is no part of the tower. A part of the tower that has no
// such name keeps its own, and is refused with it by what reads the tower.
std::string mmproj_name(HfTowerClass kind, const std::string& name);

}  // namespace quire
