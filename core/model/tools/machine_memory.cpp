#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/model/tools/memory_plan.h"

namespace quire {

namespace {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// A file that holds one number; nothing for "max" or where the file is absent.
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

// The process's own group: the line "0::/path" of /proc/self/cgroup.
std::filesystem::path own_group(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

// What the group leaves below its limits: its page cache counts as free, because the kernel gives it up under pressure.
std::optional<std::uint64_t> group_available(const std::filesystem::path& folder) {
  const auto max = read_number(folder / "memory.max");
  const auto high = read_number(folder / "memory.high");
  if (!max && !high) return std::nullopt;
  const std::uint64_t limit = std::min(max.value_or(UINT64_MAX), high.value_or(UINT64_MAX));
  const std::uint64_t current = read_number(folder / "memory.current").value_or(0);
  const std::uint64_t cache = read_field(folder / "memory.stat", "active_file").value_or(0) +
                              read_field(folder / "memory.stat", "inactive_file").value_or(0);
  const std::uint64_t held = current - std::min(current, cache);
  return limit - std::min(limit, held);
}

}  // namespace

MachineMemory machine_memory(const std::filesystem::path& root) {
  const auto kibibytes = read_field(root / "proc/meminfo", "MemAvailable:");
  if (!kibibytes) throw StartupError("/proc/meminfo does not tell the available memory (MemAvailable)");
  MachineMemory out{.available = *kibibytes * 1024, .limited_by = "the machine"};
  const auto mount = root / "sys/fs/cgroup";
  for (auto group = own_group(root);; group = group.parent_path()) {
    const auto available = group_available(mount / group);
    if (available && *available < out.available) {
      out = {.available = *available, .limited_by = fmt::format("the cgroup /{}", group.string())};
    }
    if (group.empty()) return out;
  }
}

MachineMemory device_memory(const BackendOptions& options) {
  if (const auto own = own_memory(options)) return {.available = own->available, .limited_by = own->name};
  return machine_memory();
}

}  // namespace quire
