#include "core/base/files/write_error.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace quire {

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
