// TemporaryFile: a file that is written beside its final place and moved there whole, or is gone. One thread at a time;
// processes may share the folder. Invariant: a temporary file is locked while its writer lives, so that the files of
// writers that died are recognised and removed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace quire {

class TemporaryFile {
 public:
  // A file beside `path`, named path.XXXXXX; error() says if there is none. The folder is made where it is missing.
  explicit TemporaryFile(std::filesystem::path path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // After the first failure nothing more is done.
  void write(std::span<const std::byte> bytes);
  // Syncs the file if `is_synced`, names it and closes it.
  void commit(bool is_synced);
  const std::error_code& error() const { return error_; }

 private:
  std::filesystem::path path_;
  std::string name_;
  std::error_code error_;
  int file_ = -1;
};

// Removes what writers that died left in a folder beside files whose names end with `suffix`.
void remove_abandoned(const std::filesystem::path& folder, const std::string& suffix);

}  // namespace quire
