// Folders that the daemon writes to, and the reasons why a write failed. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace quire {

// Makes the folder and its missing parents; a new folder is accessible to this user only.
inline void make_private_folder(const std::filesystem::path& folder, std::error_code& failed) {
  if (std::filesystem::create_directories(folder, failed))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
}

// No error: files can be created in it, or the folder can be created.
std::error_code try_folder(const std::filesystem::path& folder);

// The text of `error_number`; for EFBIG with the process's limit and the place where it is set.
std::string describe_write_error(int error_number);

// "RLIMIT_FSIZE allows ..."; empty if files of this process may have any size.
std::string describe_file_size_limit();

}  // namespace quire
