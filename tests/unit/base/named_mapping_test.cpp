#include "core/base/memory/named_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/support/temporary_folder.h"

namespace quire {

namespace {

constexpr std::size_t kBytes = 1 << 16;
constexpr int kExitCode = 42;

// Runs in a child: maps the file, truncates it and reads its last byte.
[[noreturn]] void read_what_is_gone(const std::string& path, bool is_named, int standard_error) {
  ::dup2(standard_error, STDERR_FILENO);
  end_when_truncated(kExitCode);
  const int file = ::open(path.c_str(), O_RDWR);
  void* const at = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, file, 0);
  const auto* const bytes = static_cast<const std::byte*>(at);
  NamedMapping name;
  if (is_named) name = NamedMapping({bytes, kBytes}, path);
  if (::ftruncate(file, 0) != 0) ::_exit(1);
  ::_exit(static_cast<int>(static_cast<const volatile std::byte*>(bytes)[kBytes - 1]));
}

struct End {
  int status = 0;
  std::string text;
};

End end_of_child(const std::string& path, bool is_named) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) read_what_is_gone(path, is_named, ends[1]);
  ::close(ends[1]);
  End end;
  char piece[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], piece, sizeof piece)) > 0;)
    end.text.append(piece, static_cast<std::size_t>(count));
  ::close(ends[0]);
  REQUIRE(::waitpid(child, &end.status, 0) == child);
  return end;
}

}  // namespace

TEST_CASE("a mapped file that is cut short ends the process with one line that names it", "[base]") {
  const test::TemporaryFolder folder;
  folder.write("weights", std::string(kBytes, 'x'));
  const End end = end_of_child(folder / "weights", true);
  REQUIRE(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == kExitCode);
  CHECK(end.text.starts_with("quire: " + (folder / "weights").string() + ": the file was cut short"));
  CHECK(end.text.find('\n') == end.text.size() - 1);
}

TEST_CASE("any other bus error ends the process as ever", "[base]") {
  const test::TemporaryFolder folder;
  folder.write("other", std::string(kBytes, 'x'));
  const End end = end_of_child(folder / "other", false);
  REQUIRE(WIFSIGNALED(end.status));
  CHECK(WTERMSIG(end.status) == SIGBUS);
}

}  // namespace quire
