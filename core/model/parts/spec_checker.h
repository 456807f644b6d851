// SpecChecker: checks numbers of a ModelSpec. Throws StartupError, one line that begins with `where`.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace quire {

class SpecChecker {
 public:
  explicit SpecChecker(const std::string& where) : where_(where) {}

  const std::string& where() const { return where_; }
  void require(bool condition, const std::string& what) const {
    if (!condition) throw StartupError(fmt::format("{}: {}", where_, what));
  }
  void in_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) const {
    require(value >= low && value <= high, fmt::format("{} is {}, not between {} and {}", name, value, low, high));
  }

 private:
  const std::string& where_;
};

}  // namespace quire
