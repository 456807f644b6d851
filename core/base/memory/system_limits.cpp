#include "core/base/memory/system_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <fstream>
#include <new>
#include <optional>
#include <system_error>

#include "kernels/control_group.h"

namespace quire {

namespace {

std::optional<std::uint64_t> resource_limit(decltype(RLIMIT_AS) resource) {
  struct rlimit limit {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string thread_limits(const std::filesystem::path& root) {
  std::string limits;
  if (const auto most = resource_limit(RLIMIT_NPROC))
    limits += fmt::format("; its user may have {} processes and threads (ulimit -u, systemd's LimitNPROC)", *most);
  for (const ControlGroup& group : control_groups("pids", root)) {
    std::uint64_t most = 0;
    if (std::ifstream(group.folder / "pids.max") >> most)
      limits += fmt::format("; the cgroup {} may have {} (pids.max, systemd's TasksMax)", group.name, most);
  }
  return limits;
}

}  // namespace

std::string describe_failure(const std::exception& error, const std::filesystem::path& root) {
  const auto* const refused = dynamic_cast<const std::system_error*>(&error);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) {
    return "the system refused to start another thread" + thread_limits(root) +
           "; raise the limit, or lower server.threads, server.text_threads and backend.cpu.threads";
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  const auto most = resource_limit(RLIMIT_AS);
  return "the system refused more memory" +
         (most ? fmt::format("; the address space is limited to {} MiB (ulimit -v, systemd's LimitAS)", *most >> 20)
               : std::string()) +
         "; raise the limit, or lower kv_cache.memory and the number of threads";
}

}  // namespace quire
