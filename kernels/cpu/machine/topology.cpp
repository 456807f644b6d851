#include "kernels/cpu/machine/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "kernels/control_group.h"

namespace quire {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first processor of a sibling list such as "0,64" or "0-1"; -1 if it cannot be read.
int first_sibling(int cpu, const std::filesystem::path& cpus) {
  const std::string text = read_text(cpus / ("cpu" + std::to_string(cpu)) / "topology/thread_siblings_list");
  int first = -1;
  std::from_chars(text.data(), text.data() + text.size(), first);
  return first;
}

std::vector<int> allowed_processors() {
  // Machines beyond 1,024 processors need a larger set than cpu_set_t; grow until the kernel accepts.
  std::vector<int> allowed;
  for (int capacity = 1024; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) allowed.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) break;
  }
  return allowed;
}

}  // namespace

std::vector<int> one_per_core(const std::vector<int>& processors, const std::filesystem::path& cpus) {
  std::vector<int> cores;
  std::vector<int> seen;
  for (const int cpu : processors) {
    const int sibling = first_sibling(cpu, cpus);
    if (sibling >= 0 && std::find(seen.begin(), seen.end(), sibling) != seen.end()) continue;
    seen.push_back(sibling);
    cores.push_back(cpu);
  }
  return cores;
}

std::vector<int> fast_cores(const std::vector<int>& cores, const std::filesystem::path& cpus) {
  std::vector<int> capacities;
  for (const int cpu : cores) {
    const std::string text = read_text(cpus / ("cpu" + std::to_string(cpu)) / "cpu_capacity");
    int capacity = 0;
    std::from_chars(text.data(), text.data() + text.size(), capacity);
    if (capacity <= 0) return cores;
    capacities.push_back(capacity);
  }
  std::vector<int> fast;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (2 * capacities[i] >= *std::ranges::max_element(capacities)) fast.push_back(cores[i]);
  }
  return fast;
}

std::vector<int> usable_cores() {
  const std::filesystem::path cpus = "/sys/devices/system/cpu";
  return fast_cores(one_per_core(allowed_processors(), cpus), cpus);
}

std::optional<int> parse_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  long long quota = 0;
  long long period = 0;
  const auto first = std::from_chars(text.data(), text.data() + space, quota);
  const auto second = std::from_chars(text.data() + space + 1, text.data() + text.size(), period);
  if (first.ec != std::errc() || second.ec != std::errc() || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<long long>(quota / period, 1, 1 << 16));
}

std::optional<int> cgroup_cpu_limit(const std::filesystem::path& root) {
  std::optional<int> limit;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const std::string quota =
        group.is_v1 ? read_text(group.folder / "cpu.cfs_quota_us") + " " + read_text(group.folder / "cpu.cfs_period_us")
                    : read_text(group.folder / "cpu.max");
    const std::optional<int> here = parse_cpu_max(quota);
    if (here && (!limit || *here < *limit)) limit = here;
  }
  return limit;
}

int default_threads() {
  const auto cores = static_cast<int>(usable_cores().size());
  const int known = cores > 0 ? cores : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::min(known, cgroup_cpu_limit().value_or(known));
}

}  // namespace quire
