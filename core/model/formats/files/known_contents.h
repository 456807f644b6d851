// KnownContents: hashes of large files that were read from end to end before, kept in a folder by the files'
// stamps. One thread at a time; processes may share the folder. Invariants: a hash is kept only for a file whose
// every later change gives it another stamp (see FileStamp); a damaged line is ignored; a folder that cannot be
// written costs time and nothing else. Write access to the folder means write access to the weights and blocks in
// it too.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/formats/files/content_hash.h"
#include "core/model/formats/files/file_stamp.h"

namespace quire {

class KnownContents {
 public:
  // An empty folder keeps nothing.
  explicit KnownContents(const std::filesystem::path& folder);

  std::optional<ContentHash> find(const FileStamp& stamp) const;
  // Keeps the hash as the most recently used.
  void remember(const FileStamp& stamp, const ContentHash& hash);
  // The file's place in order of last use; nothing if it is not kept.
  std::optional<std::size_t> last_use(const FileStamp& stamp) const;

 private:
  using Entry = std::pair<FileStamp, ContentHash>;
  static std::vector<Entry> read(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<Entry> entries_;  // in order of last use
};

}  // namespace quire
