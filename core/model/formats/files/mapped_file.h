// MappedFile: a regular file mapped read-only, whole. Immutable after construction; any thread.
// Pages come in as they are touched: opening costs nothing in proportion to the file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "core/base/memory/named_mapping.h"
#include "core/model/formats/files/file_stamp.h"

namespace quire {

// Throws StartupError for a link whose target is absent: such a file does not count as absent.
bool is_there(const std::filesystem::path& path);

class MappedFile {
 public:
  // Throws StartupError if the path is absent, unreadable, not a regular file or empty.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }  // stamp of the file when it was mapped

  // A hint for a file that is read completely: some file systems then read and map huge pages, which saves address
  // translation. Reading single rows would then read 2 MiB for each.
  void prefer_huge_pages() const;
  // Drops the pages of `range`, which lies in bytes(), from this process's memory; reading them again maps them again.
  void release(std::span<const std::byte> range) const;

 private:
  std::filesystem::path path_;
  FileStamp stamp_;
  std::span<const std::byte> bytes_;
  NamedMapping name_;
};

}  // namespace quire
