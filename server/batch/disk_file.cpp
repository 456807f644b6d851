#include "server/batch/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/files/writing.h"

namespace quire {

namespace {

constexpr std::size_t kReadBytes = 256 * 1024;
constexpr mode_t kOwnerOnly = 0600;

}  // namespace

Error storage_error(const std::filesystem::path& path, int error_number) {
  const bool is_full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  const std::string why = fmt::format("{}: {}", path.filename().string(), describe_write_error(error_number));
  if (is_full) return Error{ErrorKind::kNoMemory, "There is no room to store this (" + why + ")", "storage_full", ""};
  return Error{ErrorKind::kInternal, "The file could not be stored or read (" + why + ")", "storage_failed", ""};
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

Result<void> replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += ".new";
  auto file = DiskFile::create(beside);
  if (!file) return tl::make_unexpected(file.error());
  Result<void> done = file->write(text);
  if (done) done = file->sync();
  if (done && std::rename(beside.c_str(), path.c_str()) != 0) done = tl::make_unexpected(storage_error(path, errno));
  if (!done) {
    ::unlink(beside.c_str());
    return done;
  }
  sync_folder(path.parent_path());
  return done;
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<DiskFile> DiskFile::open(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kOwnerOnly);
  if (descriptor < 0) return tl::make_unexpected(storage_error(path, errno));
  return DiskFile(descriptor);
}

Result<DiskFile> DiskFile::create(const std::filesystem::path& path) {
  return open(path, O_RDWR | O_CREAT | O_TRUNC);
}

Result<DiskFile> DiskFile::append_to(const std::filesystem::path& path) {
  return open(path, O_RDWR | O_CREAT | O_APPEND);
}

Result<DiskFile> DiskFile::read_from(const std::filesystem::path& path) {
  return open(path, O_RDONLY);
}

Result<void> DiskFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return tl::make_unexpected(storage_error("a file", count < 0 ? errno : ENOSPC));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::string> DiskFile::read(std::int64_t offset, std::size_t size) const {
  std::string bytes(size, '\0');
  std::size_t num_read = 0;
  while (num_read < size) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data() + num_read, size - num_read, offset + static_cast<std::int64_t>(num_read));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return tl::make_unexpected(storage_error("a file", errno));
    if (count == 0) break;
    num_read += static_cast<std::size_t>(count);
  }
  bytes.resize(num_read);
  return bytes;
}

Result<std::int64_t> DiskFile::size() const {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  if (end < 0) return tl::make_unexpected(storage_error("a file", errno));
  return end;
}

Result<void> DiskFile::sync() {
  if (::fdatasync(descriptor_) != 0) return tl::make_unexpected(storage_error("a file", errno));
  return {};
}

// Returns false at the end of the file.
bool LineReader::fill() {
  if (at_end_ || failed_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  auto more = file_.read(offset_, kReadBytes);
  if (!more) {
    failed_ = true;
    error_ = more.error();
    return false;
  }
  offset_ += static_cast<std::int64_t>(more->size());
  buffer_ += *more;
  at_end_ = more->empty();
  return !at_end_;
}

LineReader::Next LineReader::next(std::string& line) {
  line.clear();
  bool is_too_long = false;
  const auto most = static_cast<std::size_t>(max_line_bytes_);
  std::size_t looked_at = begin_;
  while (true) {
    const std::size_t end = buffer_.find('\n', looked_at);
    const std::size_t length = std::min(end, buffer_.size()) - begin_;
    if (!is_too_long && length > most) {
      is_too_long = true;
      line.assign(buffer_, begin_, most);
    }
    if (end != std::string::npos) {
      if (!is_too_long) line.assign(buffer_, begin_, length);
      begin_ = end + 1;
      break;
    }
    if (is_too_long) begin_ = buffer_.size();
    const std::size_t num_kept = buffer_.size() - begin_;
    if (!fill()) {
      if (failed_) return Next::kFailed;
      if (num_kept == 0 && !is_too_long) return Next::kEnd;
      if (!is_too_long) line.assign(buffer_, begin_);
      begin_ = buffer_.size();
      break;
    }
    looked_at = num_kept;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return is_too_long ? Next::kTooLong : Next::kLine;
}

}  // namespace quire
