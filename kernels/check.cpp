#include "kernels/check.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace quire {

void check_failed(const char* condition, const char* reason, const char* file, int line) {
  // A pipe without a reader must not keep the process from ending.
  constexpr int kPatienceMs = 500;
  pollfd reader{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&reader, 1, kPatienceMs) == 1)
    std::fprintf(stderr, "%s:%d: invariant broken: %s (%s)\n", file, line, reason, condition);
  std::abort();
}

}  // namespace quire
