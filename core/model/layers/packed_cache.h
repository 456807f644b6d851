// PackedCache: a backend's packed weights in a file, so that the next start maps them instead of packing. One
// thread at a time; processes may share the folder. Invariants: a file under its final name is complete (written
// aside, synced, renamed) and belongs to the model, packing and version that its trailer names; its bytes are
// hashed before they are mapped for use, unless its stamp proves them unchanged since the last hash
// (KnownContents); the files of a folder hold at most max_bytes, with LRU eviction; a fault of the cache costs time
// but never fails the start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/files/content_hash.h"
#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/files/temporary_file.h"

namespace quire {

// A cache file that passed its checks.
class PackedWeights {
 public:
  std::size_t size() const { return entries_.size(); }
  std::span<const std::byte> operator[](std::size_t index) const { return entries_[index]; }

 private:
  friend class PackedCache;
  explicit PackedWeights(const std::filesystem::path& path) : file_(path) { file_.prefer_huge_pages(); }

  MappedFile file_;
  std::vector<std::span<const std::byte>> entries_;
};

// Writes a cache file entry by entry; nothing is left behind unless finish() succeeded.
class PackedWriter {
 public:
  void add(std::span<const std::byte> packed);
  // Syncs and renames the file. Returns an empty string, or why there is no file.
  std::string finish();

 private:
  friend class PackedCache;
  PackedWriter(std::filesystem::path path, std::string identity, std::int64_t max_bytes);
  void write(const void* from, std::size_t bytes);
  void write_pending();

  std::filesystem::path path_;
  TemporaryFile file_;
  std::string identity_;
  std::uint64_t max_bytes_;
  std::uint64_t offset_ = 0;          // offset after the pending bytes
  std::vector<std::byte> pending_;    // not yet in the file: written in large aligned pieces
  std::vector<std::uint64_t> table_;  // offset and size of each entry
  ContentDigest digest_;
};

class PackedCache {
 public:
  PackedCache(std::filesystem::path folder, std::string identity, std::int64_t max_bytes);

  // Null if there is no valid file of this identity with `num_entries` entries. `poll`, which may throw, is called
  // while a large file is hashed.
  std::shared_ptr<const PackedWeights> open(std::size_t num_entries, const std::function<void()>& poll = {}) const;
  // Makes room for about `num_bytes`. Null if that is more than the folder may hold.
  std::unique_ptr<PackedWriter> create(std::uint64_t num_bytes = 0) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  bool has_content(const MappedFile& file, std::size_t num_bytes, const ContentHash& content,
                   const std::function<void()>& poll) const;
  void make_room(std::uint64_t num_bytes) const;

  std::filesystem::path path_;
  std::string identity_;
  std::uint64_t max_bytes_;
};

}  // namespace quire
