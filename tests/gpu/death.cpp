#include "tests/gpu/death.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace quire::test {
namespace {

[[noreturn]] void die_in_child(const std::function<void()>& body, int errors) {
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS})
    std::signal(number, SIG_DFL);  // replaces the test program's handlers
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(errors, STDERR_FILENO);
  body();
  _exit(0);
}

}  // namespace

Death death_of(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) die_in_child(body, ends[1]);
  close(ends[1]);
  Death out;
  char buffer[4096];
  for (ssize_t count = read(ends[0], buffer, sizeof buffer); count > 0; count = read(ends[0], buffer, sizeof buffer))
    out.message.append(buffer, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) out.signal = WTERMSIG(status);
  return out;
}

}  // namespace quire::test
