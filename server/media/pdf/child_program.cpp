#include "server/media/pdf/child_program.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

namespace quire {

namespace {

using ChildClock = std::chrono::steady_clock;

constexpr int kChildLook = 20;  // milliseconds between checks of the clock and the client
constexpr int kMostDescriptors = 64;
constexpr std::size_t kPiece = 64 * 1024;

// A descriptor above those of the standard streams, closed at its end and by other programs' start.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {
    if (number_ < 0 || number_ > STDERR_FILENO) return;
    number_ = ::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(number);
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

struct Limit {
  __rlimit_resource resource;
  rlimit value;
};

Limit limit_of(__rlimit_resource resource, rlim_t wanted) {
  rlimit present{};
  if (::getrlimit(resource, &present) == 0) wanted = std::min(wanted, present.rlim_max);
  return {resource, {wanted, wanted}};
}

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kMachine = 0;
#endif

// Calls that a reader of files does not need: sockets, and reaching into other processes.
constexpr std::uint32_t kRefusedCalls[] = {SYS_socket,           SYS_connect,           SYS_kill,    SYS_ptrace,
                                           SYS_process_vm_readv, SYS_process_vm_writev, SYS_unshare, SYS_setns,
                                           SYS_io_uring_setup};

// System call filter: these calls fail, and calls numbered for another architecture end the process.
std::vector<sock_filter> call_filter() {
  constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t kIsEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
  constexpr std::uint32_t kFirstOfX32 = 0x40000000;  // x32's numbers, which begin here
  std::vector<sock_filter> filter = {
      {kLoad, 0, 0, offsetof(seccomp_data, arch)},    {kIsEqual, 1, 0, kMachine},
      {kReturn, 0, 0, SECCOMP_RET_KILL_PROCESS},      {kLoad, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JGE | BPF_K, 0, 1, kFirstOfX32}, {kReturn, 0, 0, SECCOMP_RET_KILL_PROCESS},
  };
  for (const std::uint32_t call : kRefusedCalls) {
    filter.push_back({kIsEqual, 0, 1, call});
    filter.push_back({kReturn, 0, 0, SECCOMP_RET_ERRNO | EPERM});
  }
  filter.push_back({kReturn, 0, 0, SECCOMP_RET_ALLOW});
  return filter;
}

// Data for the child, made before it starts: the child shares this process's memory until it runs the program, and must
// not allocate.
struct Start {
  const char* path;
  std::vector<char*> arguments;
  std::array<char*, 1> environment{};
  std::array<Limit, 5> limits;
  sock_fprog filter;  // not applied where the kernel has no filters
  int input;
  int output;
  int nowhere;
  int max_descriptor;
  volatile int error = 0;
};

void close_all_others(int max_descriptor) {
  if (::close_range(STDERR_FILENO + 1, ~0U, 0) == 0) return;
  for (int i = STDERR_FILENO + 1; i < max_descriptor; ++i)
    ::close(i);
}

[[noreturn]] void become(Start& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool is_bound = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::dup2(start.input, STDIN_FILENO) >= 0 &&
                        ::dup2(start.output, STDOUT_FILENO) >= 0 && ::dup2(start.nowhere, STDERR_FILENO) >= 0 &&
                        std::ranges::all_of(start.limits, [](const Limit& limit) {
                          return ::setrlimit(limit.resource, &limit.value) == 0;
                        });
  if (is_bound) {
    close_all_others(start.max_descriptor);
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGPIPE, &action, nullptr);
    // A write above the file size limit becomes an error of the program, not a signal.
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGXFSZ, &action, nullptr);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (kMachine != 0) ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &start.filter);
    ::execve(start.path, start.arguments.data(), start.environment.data());
  }
  start.error = errno;
  ::_exit(127);
}

// Uses vfork: copying page tables that cover a model's memory would be slow. This thread waits for the program's start.
// No signal handler of this process runs in the child.
[[gnu::noinline]] pid_t start_child(Start& start) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::vfork();
  if (child == 0) become(start);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) start.error = error;
  return child;
}

bool write_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(to, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::lseek(to, 0, SEEK_SET) == 0;
}

// Checks whether the call has to end now, and why.
class Bounds {
 public:
  explicit Bounds(const ChildProgram& program) : program_(program), deadline_(ChildClock::now() + program.max_time) {}

  bool reached() {
    if (ChildClock::now() > deadline_) end_ = ChildEnd::kTooSlow;
    if (program_.is_unwanted && program_.is_unwanted()) end_ = ChildEnd::kUnwanted;
    return end_ != ChildEnd::kDone;
  }
  ChildEnd end() const { return end_; }

 private:
  const ChildProgram& program_;
  const ChildClock::time_point deadline_;
  ChildEnd end_ = ChildEnd::kDone;
};

ChildEnd read_output(int from, std::int64_t most, Bounds& bounds, std::string& bytes) {
  std::string piece(kPiece, '\0');
  while (!bounds.reached()) {
    pollfd ready{from, POLLIN, 0};
    if (::poll(&ready, 1, kChildLook) <= 0) continue;
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got <= 0) return ChildEnd::kDone;
    if (std::cmp_greater(bytes.size() + static_cast<std::size_t>(got), most)) return ChildEnd::kTooMuch;
    bytes.append(piece, 0, static_cast<std::size_t>(got));
  }
  return bounds.end();
}

// Waits for the end of the process that has closed its output.
ChildEnd wait_for_end(pid_t child, Bounds& bounds) {
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0) {
    if (bounds.reached()) break;
    ::poll(nullptr, 0, 1);
  }
  return bounds.end();
}

// Kills the child's process group while its number cannot belong to another process, and returns the exit status.
int reap(pid_t child) {
  ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ChildOutput run_child(const ChildProgram& program, const std::string& input) {
  Descriptor file(::memfd_create("quire-input", MFD_CLOEXEC));
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {ChildEnd::kNotStarted, errno, {}};
  Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (file.number() < 0 || nowhere.number() < 0 || !write_all(file.number(), input))
    return {ChildEnd::kNotStarted, errno, {}};

  const auto seconds = std::chrono::ceil<std::chrono::seconds>(program.max_time).count();
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  std::vector<sock_filter> filter = call_filter();
  Start start{.path = program.path.c_str(),
              .arguments = {},
              .limits = {limit_of(RLIMIT_AS, static_cast<rlim_t>(program.memory)),
                         limit_of(RLIMIT_CPU, static_cast<rlim_t>(seconds)), limit_of(RLIMIT_FSIZE, 0),
                         limit_of(RLIMIT_CORE, 0), limit_of(RLIMIT_NOFILE, kMostDescriptors)},
              .filter = {static_cast<unsigned short>(filter.size()), filter.data()},
              .input = file.number(),
              .output = to.number(),
              .nowhere = nowhere.number(),
              .max_descriptor = static_cast<int>(std::min<rlim_t>(descriptors.rlim_cur, 1 << 20))};
  start.arguments.push_back(const_cast<char*>(program.path.c_str()));
  for (const std::string& argument : program.arguments)
    start.arguments.push_back(const_cast<char*>(argument.c_str()));
  start.arguments.push_back(nullptr);

  Bounds bounds(program);
  const pid_t child = start_child(start);
  if (child < 0) return {ChildEnd::kNotStarted, start.error, {}};
  to.close();
  file.close();
  ChildOutput output;
  output.end = read_output(from.number(), program.max_output, bounds, output.bytes);
  if (output.end == ChildEnd::kDone) output.end = wait_for_end(child, bounds);
  output.status = reap(child);
  if (start.error != 0) return {ChildEnd::kNotStarted, start.error, {}};
  if (output.end == ChildEnd::kDone && output.status != 0) output.end = ChildEnd::kFailed;
  return output;
}

}  // namespace quire
