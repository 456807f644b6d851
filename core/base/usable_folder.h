// Whether a folder that a user names can be written to, found out without leaving anything behind. Any thread.
#pragma once

#include <filesystem>
#include <system_error>

namespace quire {

// No error: files can be made there, or the folder can be made.
std::error_code try_folder(const std::filesystem::path& folder);

}  // namespace quire
