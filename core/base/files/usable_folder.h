// Checks whether a folder that a user names can be written to, without leaving anything behind. Any thread.
#pragma once

#include <filesystem>
#include <system_error>

namespace quire {

// No error: files can be created in it, or the folder can be created.
std::error_code try_folder(const std::filesystem::path& folder);

}  // namespace quire
