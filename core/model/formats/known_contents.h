// KnownContents: hashes of large files that were read from end to end before, kept in a folder by the files' stamps.
// One thread at a time; processes may share the folder. Invariants: a hash is remembered only for a file whose every
// later change gives it another stamp (see FileStamp); a damaged line is as if it were not there; a folder that cannot
// be written costs time and nothing else. Write access to the folder means write access to the
// weights and blocks in it too.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/formats/content_hash.h"
#include "core/model/formats/file_stamp.h"

namespace quire {

class KnownContents {
 public:
  // An empty folder remembers nothing.
  explicit KnownContents(const std::filesystem::path& folder);

  std::optional<ContentHash> find(const FileStamp& stamp) const;
  // Remembers the hash as the one used last.
  void remember(const FileStamp& stamp, const ContentHash& hash);
  // The place of a file among all in the order of their last uses; nothing if it is not remembered.
  std::optional<std::size_t> last_use(const FileStamp& stamp) const;

 private:
  using Entry = std::pair<FileStamp, ContentHash>;
  static std::vector<Entry> read(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<Entry> entries_;  // in the order of their last uses
};

}  // namespace quire
