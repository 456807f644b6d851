#include "core/base/files/writing.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace quire {

std::error_code try_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder).lexically_normal();
  const std::filesystem::path wanted = there;
  while (!std::filesystem::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  if (!std::filesystem::is_directory(there, error)) return std::make_error_code(std::errc::not_a_directory);
  if (::access(there.c_str(), W_OK | X_OK) != 0) return std::error_code(errno, std::system_category());
  if (there == wanted) return {};
  // Creates the folder to find out whether it can be: some file systems take no folders.
  std::filesystem::create_directories(wanted, error);
  for (std::filesystem::path at = wanted; at != there; at = at.parent_path()) {
    std::error_code ignored;
    std::filesystem::remove(at, ignored);
  }
  return error;
}

std::string describe_file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format("this process may write files of at most {} bytes (systemd's LimitFSIZE=, ulimit -f)",
                     limit.rlim_cur);
}

std::string describe_write_error(int error_number) {
  std::string text = std::strerror(error_number);
  if (error_number != EFBIG) return text;
  const std::string limit = describe_file_size_limit();
  return limit.empty() ? text : text + ": " + limit;
}

}  // namespace quire
