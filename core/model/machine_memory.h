// The memory that is free for this process: the machine's, or that of its control group (cgroup v2). Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace quire {

struct MachineMemory {
  std::uint64_t available = 0;  // bytes, page cache that can be given up included
  std::string limited_by;       // "the machine", or "the cgroup /system.slice/quire.service"
};

// The smallest of /proc/meminfo's MemAvailable and what each enclosing group leaves below its memory.max and
// memory.high. Throws StartupError where /proc/meminfo cannot be read. `root`: where /proc and /sys are found, for
// tests.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

}  // namespace quire
