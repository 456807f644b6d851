// File access for the store of batches: lines read in bounded memory, text appended, small files replaced as a whole.
// Batch thread only. Errors are values: a full disk does not end the process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace quire {

// 507 "storage_full" if the disk is full, else 500 "storage_failed"; the text goes to the log too.
Error storage_error(const std::filesystem::path& path, int error_number);

// Replaces the file atomically: even after a power failure it is either the old one or the new one.
Result<void> replace_file(const std::filesystem::path& path, std::string_view text);
// Flushes the folder's names to the disk.
void sync_folder(const std::filesystem::path& folder);

class DiskFile {
 public:
  DiskFile() = default;
  DiskFile(DiskFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  DiskFile& operator=(DiskFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~DiskFile();

  // Opens an empty file; existing content is discarded.
  static Result<DiskFile> create(const std::filesystem::path& path);
  // Opens the file for appending; creates it if absent.
  static Result<DiskFile> append_to(const std::filesystem::path& path);
  static Result<DiskFile> read_from(const std::filesystem::path& path);

  bool is_open() const { return descriptor_ >= 0; }
  // Writes everything, or returns an error; some of the bytes may be written then.
  Result<void> write(std::string_view bytes);
  // Reads from that offset; fewer than `size` bytes at the end of the file.
  Result<std::string> read(std::int64_t offset, std::size_t size) const;
  Result<std::int64_t> size() const;
  Result<void> sync();

 private:
  explicit DiskFile(int descriptor) : descriptor_(descriptor) {}
  static Result<DiskFile> open(const std::filesystem::path& path, int flags);

  int descriptor_ = -1;
};

// The lines of a file, one after another, without their ends.
class LineReader {
 public:
  LineReader() = default;
  LineReader(DiskFile file, std::int64_t max_line_bytes) : file_(std::move(file)), max_line_bytes_(max_line_bytes) {}

  enum class Next { kLine, kTooLong, kEnd, kFailed };
  // For a line that is too long, `line` holds its beginning. A last line without a line end counts as a line.
  Next next(std::string& line);
  std::int64_t num_read() const { return offset_; }
  const Error& error() const { return error_; }  // after kFailed

 private:
  bool fill();

  DiskFile file_;
  std::int64_t max_line_bytes_ = 0;
  std::int64_t offset_ = 0;  // end of the bytes read from the file
  std::string buffer_;
  std::size_t begin_ = 0;  // first unread byte of buffer_
  bool at_end_ = false;
  bool failed_ = false;
  Error error_;
};

}  // namespace quire
