#include "kernels/control_group.h"

#include <fstream>

namespace quire {

namespace {

// A line of /proc/self/cgroup: "4:memory:/path", or "0::/path" of v2.
struct Membership {
  std::string controllers;
  std::filesystem::path group;  // without the leading slash
};

std::vector<Membership> memberships(const std::filesystem::path& root) {
  std::vector<Membership> found;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    found.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 2)});
  }
  return found;
}

bool names(const std::string& controllers, std::string_view controller) {
  return ("," + controllers + ",").find("," + std::string(controller) + ",") != std::string::npos;
}

void add_groups(std::vector<ControlGroup>& found, const std::filesystem::path& mount, std::filesystem::path group,
                bool is_v1) {
  for (;; group = group.parent_path()) {
    std::error_code unreadable;
    if (std::filesystem::is_directory(mount / group, unreadable))
      found.push_back({mount / group, "/" + group.string(), is_v1});
    if (group.empty()) return;
  }
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::vector<ControlGroup> v1;
  std::vector<ControlGroup> found;
  for (const Membership& each : memberships(root)) {
    std::error_code unreadable;
    if (each.controllers.empty()) {
      const bool is_hybrid = std::filesystem::is_directory(mount / "unified", unreadable);
      add_groups(found, is_hybrid ? mount / "unified" : mount, each.group, false);
    } else if (names(each.controllers, controller)) {
      const bool has_all = std::filesystem::is_directory(mount / each.controllers, unreadable);
      add_groups(v1, has_all ? mount / each.controllers : mount / controller, each.group, true);
    }
  }
  found.insert(found.end(), v1.begin(), v1.end());
  return found;
}

}  // namespace quire
