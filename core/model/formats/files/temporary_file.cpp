#include "core/model/formats/files/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/files/writing.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kRandomPart = 7;  // ".XXXXXX"

std::error_code last_error() {
  return {errno, std::generic_category()};
}

}  // namespace

TemporaryFile::TemporaryFile(fs::path path) : path_(std::move(path)), name_(path_.string() + ".XXXXXX") {
  std::error_code ignored;
  make_private_folder(path_.parent_path(), ignored);
  file_ = ::mkostemp(name_.data(), O_CLOEXEC);
  if (file_ < 0) {
    error_ = last_error();
  } else {
    ::flock(file_, LOCK_EX | LOCK_NB);  // without support for locks, others cannot lock the file either
  }
}

TemporaryFile::~TemporaryFile() {
  if (file_ < 0) return;
  ::unlink(name_.c_str());
  ::close(file_);
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty() && !error_) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else {
      error_ = written < 0 ? last_error() : std::make_error_code(std::errc::no_space_on_device);
    }
  }
}

void TemporaryFile::commit(bool is_synced) {
  if (error_) return;
  if ((is_synced && ::fsync(file_) != 0) || ::rename(name_.c_str(), path_.c_str()) != 0) {
    error_ = last_error();
    return;
  }
  ::close(std::exchange(file_, -1));
  if (!is_synced) return;
  // The new name is durable only once the folder is on disk; otherwise a crash merely loses the file.
  const int folder = ::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

void remove_abandoned(const fs::path& folder, const std::string& suffix) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() <= kRandomPart || name[name.size() - kRandomPart] != '.' ||
        !name.substr(0, name.size() - kRandomPart).ends_with(suffix)) {
      continue;
    }
    const int file = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(file);
  }
}

}  // namespace quire
