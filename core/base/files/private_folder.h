// make_private_folder: a folder that only the daemon's user can enter. Any thread.
#pragma once

#include <filesystem>
#include <system_error>

namespace quire {

// Makes the folder and its missing parents; a new folder is accessible to this user only.
inline void make_private_folder(const std::filesystem::path& folder, std::error_code& failed) {
  if (std::filesystem::create_directories(folder, failed))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
}

}  // namespace quire
