// Checks whether huge pages were requested. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace quire::test {

// Looks for "hg" in the flags of the address's area.
inline bool wants_huge_pages(const std::byte* address) {
  std::ifstream areas("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(areas, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (std::istringstream text(line); text >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      is_here = begin <= at && at < end;
    }
    if (is_here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

inline bool has_huge_pages() {
  return std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
}

}  // namespace quire::test
