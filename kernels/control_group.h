// ControlGroup: the control groups that bound this process, of cgroup v2 and of v1's hierarchies, one for each
// controller. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ControlGroup {
  std::filesystem::path folder;  // holds the group's files
  std::string name;              // "/system.slice/quire.service"
  bool is_v1 = false;            // its files have the names of v1
};

// The process's own group and the groups around it that have files, the innermost first; v2, then v1. controller:
// "memory" or "cpu". root: the folder with /proc and /sys, for tests. In a container whose group has the host's name
// for it, the mounted root is the container's own group.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace quire
