// make_private_folder: a folder for files that hold what clients said. Any thread.
#pragma once

#include <filesystem>
#include <system_error>

namespace quire {

// Makes the folder and those above it that are missing; the folder itself, where it is new, for this user alone.
inline void make_private_folder(const std::filesystem::path& folder, std::error_code& failed) {
  if (std::filesystem::create_directories(folder, failed))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
}

}  // namespace quire
