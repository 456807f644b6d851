// Programs over untrusted input: what they get, and that no bound lets them outlive the call.
#include "server/media/pdf/child_program.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace quire::test {
namespace {

using namespace std::chrono_literals;

ChildProgram shell(const std::string& lines) {
  return {.path = "/bin/sh",
          .arguments = {"-c", lines},
          .memory = std::int64_t{256} << 20,
          .max_time = 1h,
          .max_output = 1 << 20};
}

// False for a process that has ended, whether or not its parent has noticed.
bool is_running(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string number;
  std::string name;
  std::string state;
  return file >> number >> name >> state && state != "Z";
}

TEST_CASE("a child's output is its answer to its standard input", "[media]") {
  const std::string input(300'000, 'x');
  const ChildOutput output = run_child(shell("/bin/cat; echo ignored >&2"), input);
  CHECK(output.end == ChildEnd::kDone);
  CHECK(output.bytes == input);
}

TEST_CASE("a child has bounds, a group of its own and neither environment nor files", "[media]") {
  ChildProgram bare = shell("");
  bare.path = "/usr/bin/env";
  bare.arguments = {};
  const ChildOutput environment = run_child(bare, "");
  CHECK(environment.end == ChildEnd::kDone);
  CHECK(environment.bytes.empty());
  ChildProgram limits = shell("ulimit -v; ulimit -f; ulimit -n; ulimit -t; ulimit -c");
  limits.max_time = 7500ms;
  CHECK(run_child(limits, "").bytes == "262144\n0\n64\n8\n0\n");
  // Fields of stat: process, name, state, parent, group.
  const ChildOutput stat = run_child(shell("read process name state parent group rest < /proc/self/stat; "
                                           "echo $process; echo $group"),
                                     "");
  const std::size_t line = stat.bytes.find('\n');
  REQUIRE(line != std::string::npos);
  CHECK(stat.bytes.substr(0, line + 1) == stat.bytes.substr(line + 1));
  CHECK(stat.bytes != std::to_string(::getpgrp()) + "\n");
  // The descriptor of the listing is one of these.
  CHECK(run_child(shell("echo /proc/self/fd/*"), "").bytes ==
        "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n");
}

TEST_CASE("a child opens no sockets and writes no files", "[media]") {
  const std::string name = "/tmp/quire-child-" + std::to_string(::getpid());
  CHECK(run_child(shell("echo words > " + name + " || true; /bin/cat " + name), "").bytes.empty());
  std::filesystem::remove(name);
  ChildProgram perl = shell("");
  perl.path = "/usr/bin/perl";
  perl.arguments = {"-e", "socket(my $end, 1, 1, 0) ? print 'opened' : print $! + 0;"};
  if (::access(perl.path.c_str(), X_OK) != 0) {
    WARN("skipped: sockets of a child: /usr/bin/perl is not installed");
    return;
  }
  CHECK(run_child(perl, "").bytes == std::to_string(EPERM));
}

TEST_CASE("a child that fails, or cannot start, says so", "[media]") {
  const ChildOutput failed = run_child(shell("echo a; exit 3"), "");
  CHECK(failed.end == ChildEnd::kFailed);
  CHECK(failed.status == 3);
  ChildProgram absent = shell("");
  absent.path = "/nonexistent/program";
  const ChildOutput output = run_child(absent, "");
  CHECK(output.end != ChildEnd::kDone);
  CHECK(output.bytes.empty());
}

TEST_CASE("a child's output and time are bounded", "[media]") {
  ChildProgram wordy = shell("while :; do echo words; done");
  wordy.max_output = 10'000;
  CHECK(run_child(wordy, "").end == ChildEnd::kTooMuch);
  ChildProgram slow = shell("while :; do :; done");
  slow.max_time = 50ms;
  CHECK(run_child(slow, "").end == ChildEnd::kTooSlow);
  // The output is closed while the program continues.
  slow.arguments[1] = "exec >&-; while :; do :; done";
  CHECK(run_child(slow, "").end == ChildEnd::kTooSlow);
}

TEST_CASE("neither a child nor its own children outlive the call", "[media]") {
  ChildProgram program = shell("(while :; do :; done) & echo $!");
  bool has_begun = false;
  program.is_unwanted = [&] { return std::exchange(has_begun, true); };
  const ChildOutput output = run_child(program, "");
  CHECK(output.end == ChildEnd::kUnwanted);
  // The number may not have been written yet; then nothing is left to look for.
  if (output.bytes.empty()) return;
  const std::string process = output.bytes.substr(0, output.bytes.find('\n'));
  while (is_running(process))
    std::this_thread::yield();
}

}  // namespace
}  // namespace quire::test
