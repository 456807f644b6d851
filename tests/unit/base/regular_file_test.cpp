#include "core/base/files/regular_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "core/base/files/writing.h"
#include "tests/support/temporary_folder.h"

namespace quire {

using test::TemporaryFolder;

TEST_CASE("a regular file is read whole, up to the bound", "[base]") {
  const TemporaryFolder folder;
  folder.write("empty", "");
  folder.write("some", "abc");
  folder.write("large", std::string(100'000, 'x'));
  CHECK(read_regular_file(folder / "empty", 10) == "");
  CHECK(read_regular_file(folder / "some", 3) == "abc");
  CHECK(read_regular_file(folder / "large", 100'000) == std::string(100'000, 'x'));
  CHECK(read_regular_file(folder / "some", 2).error() == "is larger than 2 bytes");
  CHECK(read_regular_file(folder / "large", 99'999).error() == "is larger than 99999 bytes");
  std::filesystem::create_symlink(folder / "some", folder / "link");
  CHECK(read_regular_file(folder / "link", 10) == "abc");
}

TEST_CASE("what is no regular file is refused, and nothing waits for it", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(read_regular_file(folder / "fifo", 10).error() == "is not a regular file, but a FIFO");
  CHECK(read_regular_file(folder.path(), 10).error() == "is not a regular file, but a folder");
  CHECK(read_regular_file("/dev/zero", 10).error() == "is not a regular file, but a device");
  CHECK(read_regular_file(folder / "absent", 10).error() == "cannot be opened: No such file or directory");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(read_regular_file(folder / "socket", 10).error() == "is not a regular file, but a socket");
  ::close(socket);
}

TEST_CASE("a folder is tried without leaving anything behind", "[base]") {
  const TemporaryFolder folder;
  folder.write("file", "");
  CHECK_FALSE(try_folder(folder.path()));
  CHECK_FALSE(try_folder(folder / "a/b/c"));
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
  CHECK(try_folder(folder / "file") == std::errc::not_a_directory);
  CHECK(try_folder(folder / "file/a"));
  CHECK(try_folder("/proc/nope/a"));
}

TEST_CASE("a file that grew too large is explained by the limit of the process", "[base]") {
  CHECK(describe_write_error(ENOSPC) == "No space left on device");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit low{std::min<rlim_t>(before.rlim_max, 1 << 30), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  CHECK_THAT(describe_write_error(EFBIG), Catch::Contains("File too large") && Catch::Contains("LimitFSIZE"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
}

}  // namespace quire
