#include "core/base/files/regular_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire {

namespace {

constexpr std::size_t kPiece = 4096;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool is_same_content(const struct stat& before, const struct stat& after) {
  return before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == after.st_mtim.tv_nsec;
}

tl::unexpected<std::string> unreadable(int error) {
  return tl::make_unexpected(fmt::format("cannot be read: {}", std::strerror(error)));
}

}  // namespace

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

tl::expected<RegularFile, std::string> open_regular_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0 && errno == ENXIO) return tl::make_unexpected("is not a regular file, but a socket");
  if (descriptor < 0) return tl::make_unexpected(fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    ::close(descriptor);
    return unreadable(error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return tl::make_unexpected(fmt::format("is not a regular file, but {}", kind_of(status.st_mode)));
  }
  return RegularFile(descriptor, static_cast<std::uint64_t>(status.st_size));
}

tl::expected<std::string, std::string> read_regular_file(const std::filesystem::path& path, std::size_t most) {
  const auto file = open_regular_file(path);
  if (!file) return tl::make_unexpected(file.error());
  struct stat before {
  }, after{};
  if (::fstat(file->descriptor(), &before) != 0) return unreadable(errno);
  std::string text;
  std::size_t num_read = 0;
  while (num_read <= most) {
    // Reading a byte more than expected detects the end.
    const std::size_t expected = std::max(static_cast<std::size_t>(before.st_size), num_read + kPiece);
    text.resize(std::min(most, expected) + 1);
    const ssize_t count = ::read(file->descriptor(), text.data() + num_read, text.size() - num_read);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable(errno);
    if (count == 0) break;
    num_read += static_cast<std::size_t>(count);
  }
  if (num_read > most) return tl::make_unexpected(fmt::format("is larger than {} bytes", most));
  if (::fstat(file->descriptor(), &after) != 0) return unreadable(errno);
  if (!is_same_content(before, after)) return tl::make_unexpected(std::string("changed while it was read"));
  text.resize(num_read);
  return text;
}

namespace {

constexpr std::size_t kMostBytes = 4096;

}  // namespace

tl::expected<std::string, std::string> read_secret_file(const std::string& path) {
  auto text = read_regular_file(path, kMostBytes);
  // Editors and `echo` end a file with a line break that is no part of the secret.
  while (text && !text->empty() && (text->back() == '\n' || text->back() == '\r'))
    text->pop_back();
  return text;
}

}  // namespace quire
