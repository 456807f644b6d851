// Requirement on readers of files: they accept any bytes or refuse them with one line. Any thread.
#pragma once

#include <cstdlib>
#include <string_view>

#include "core/base/result.h"

namespace quire::fuzz {

// Runs `read`; a StartupError must be one bounded line of text. Any other exception ends the process.
template <class Read>
void expect_value_or_line(const Read& read) noexcept {
  try {
    read();
  } catch (const StartupError& error) {
    const std::string_view line = error.what();
    if (line.empty() || line.size() > 2000 || line.find('\n') != std::string_view::npos) std::abort();
  }
}

}  // namespace quire::fuzz
