// TowerReport: what `quire inspect` says of a file that reads images for a model. Any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace quire {

// Whether the file is a tower's, which no model can be opened from. False where it cannot be read.
bool is_tower_file(const std::filesystem::path& path);

// Family, sizes, limits of images with the tokens that some take, and memory. Throws StartupError where the tower
// cannot be served.
std::string describe_tower(const std::filesystem::path& path);
nlohmann::json tower_to_json(const std::filesystem::path& path);

}  // namespace quire
