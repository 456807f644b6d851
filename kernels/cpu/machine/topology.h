// The processors that this process may use: affinity, hyper-threads and the container's CPU quota. Any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The first of `processors` on each physical core, in their order. Two hyper-threads of a core share its vector units.
// cpus: the folder with cpu<N>/topology; a processor without an entry there counts as a core.
std::vector<int> one_per_core(const std::vector<int>& processors, const std::filesystem::path& cpus);

// The cores at least half as fast as the fastest, in order: a step waits for its slowest thread. cpus: the folder
// with cpu<N>/cpu_capacity, which the system has where cores differ.
std::vector<int> fast_cores(const std::vector<int>& cores, const std::filesystem::path& cpus);

// The fast processors that this process may run on, one per core, ascending.
std::vector<int> usable_cores();

// A quota and its period, as in a cgroup v2 `cpu.max` file, as whole processors (rounded down, at least 1); nothing for
// "max", v1's -1 or garbage.
std::optional<int> parse_cpu_max(std::string_view text);

// The smallest quota of this process's control groups, of v2 and v1. root: where /proc and /sys are found, for tests.
std::optional<int> cgroup_cpu_limit(const std::filesystem::path& root = "/");

// Compute threads to use by default: usable cores, bounded by the quota.
int default_threads();

}  // namespace quire
