#include "server/cli/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace quire::cli {

void show_progress_line(const std::string& text, bool last) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s%s", text.c_str(), last ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace quire::cli
