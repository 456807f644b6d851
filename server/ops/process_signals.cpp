#include "server/ops/process_signals.h"

#include <csignal>
#include <initializer_list>

namespace quire {

namespace {

// Keeps a handler that a profiler or a sanitizer has set.
void ignore_where_deadly(int number) {
  struct sigaction now {};
  if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(number, SIG_IGN);
}

}  // namespace

void ignore_deadly_signals() {
  // EPIPE and EFBIG report the same to the request concerned.
  for (const int number : {SIGPIPE, SIGXFSZ})
    ignore_where_deadly(number);
  // Sent by mistake, by a log rotation, a profiler, or a process manager made for another server.
  for (const int number : {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT})
    ignore_where_deadly(number);
  // SIGTTOU would stop a background daemon whose terminal is set to `tostop`.
  ignore_where_deadly(SIGTTOU);
}

}  // namespace quire
