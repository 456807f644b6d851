#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/model/tools/memory_plan.h"
#include "kernels/control_group.h"

namespace quire {

namespace {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// The number in a file with a single number; nothing for "max" or if the file is absent.
std::optional<std::uint64_t> read_number(const std::filesystem::path& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return parse_number(text);
}

// The number after `name` in a file of "name number" lines.
std::optional<std::uint64_t> read_field(const std::filesystem::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    const auto digits = line.find_first_not_of(" \t", name.size());
    if (digits != std::string::npos && digits > name.size()) return parse_number(std::string_view(line).substr(digits));
  }
  return std::nullopt;
}

// Memory left below a group's limit: its page cache counts as free, because the kernel reclaims it under pressure.
std::uint64_t left_of(std::uint64_t limit, std::optional<std::uint64_t> used, std::optional<std::uint64_t> active_file,
                      std::optional<std::uint64_t> inactive_file) {
  const std::uint64_t current = used.value_or(0);
  const std::uint64_t held = current - std::min(current, active_file.value_or(0) + inactive_file.value_or(0));
  return limit - std::min(limit, held);
}

std::optional<std::uint64_t> available_v1(const std::filesystem::path& folder) {
  const auto limit = read_number(folder / "memory.limit_in_bytes");  // unlimited: a number beyond any memory
  if (!limit) return std::nullopt;
  const auto stat = folder / "memory.stat";
  return left_of(*limit, read_number(folder / "memory.usage_in_bytes"), read_field(stat, "total_active_file"),
                 read_field(stat, "total_inactive_file"));
}

// Memory left below the group's limits.
std::optional<std::uint64_t> group_available(const ControlGroup& group) {
  if (group.is_v1) return available_v1(group.folder);
  const auto max = read_number(group.folder / "memory.max");
  const auto high = read_number(group.folder / "memory.high");
  if (!max && !high) return std::nullopt;
  const std::uint64_t limit = std::min(max.value_or(UINT64_MAX), high.value_or(UINT64_MAX));
  const auto stat = group.folder / "memory.stat";
  return left_of(limit, read_number(group.folder / "memory.current"), read_field(stat, "active_file"),
                 read_field(stat, "inactive_file"));
}

// Address space left below `ulimit -v`; nothing if it is unlimited.
std::optional<std::uint64_t> address_space_left(const std::filesystem::path& root) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::uint64_t mapped = read_field(root / "proc/self/status", "VmSize:").value_or(0) * 1024;
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, mapped);
}

}  // namespace

MachineMemory machine_memory(const std::filesystem::path& root) {
  const auto kibibytes = read_field(root / "proc/meminfo", "MemAvailable:");
  if (!kibibytes) throw StartupError("/proc/meminfo does not tell the available memory (MemAvailable)");
  MachineMemory out{.available = *kibibytes * 1024, .limited_by = "the machine"};
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto available = group_available(group);
    if (available && *available < out.available)
      out = {.available = *available, .limited_by = fmt::format("the cgroup {}", group.name)};
  }
  const auto mappable = address_space_left(root);
  if (mappable && *mappable < out.available)
    out = {.available = *mappable, .limited_by = "the address space limit (ulimit -v, LimitAS)"};
  return out;
}

MachineMemory device_memory(const BackendOptions& options) {
  if (const auto own = own_memory(options)) return {.available = own->available, .limited_by = own->name};
  return machine_memory();
}

}  // namespace quire
