// TemporaryFile: a file that is written beside its final place and moved there when complete, or removed. One thread at
// a time; processes may share the folder. Invariant: a temporary file is locked while its writer lives, so that files
// of dead writers are recognised and removed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace quire {

class TemporaryFile {
 public:
  // Creates a file beside `path`, named path.XXXXXX; error() explains a failure. Missing folders are created.
  explicit TemporaryFile(std::filesystem::path path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Has no effect after the first failure.
  void write(std::span<const std::byte> bytes);
  // Syncs the file if `is_synced`, renames it and closes it.
  void commit(bool is_synced);
  const std::error_code& error() const { return error_; }

 private:
  std::filesystem::path path_;
  std::string name_;
  std::error_code error_;
  int file_ = -1;
};

// Removes files of dead writers from a folder, beside files whose names end with `suffix`.
void remove_abandoned(const std::filesystem::path& folder, const std::string& suffix);

}  // namespace quire
