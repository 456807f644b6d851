// PackedCache: weights as a backend packed them, kept in a file, so that the next start maps them and packs nothing.
// One thread at a time; processes may share the folder. Invariants: a file under its final name is whole (written
// aside, synced, renamed) and belongs to the very model, packing and version that its trailer names; whatever is wrong
// with the cache costs time and never the start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/formats/mapped_file.h"
#include "core/model/layers/weight_sources.h"

namespace quire {

// What tells one set of packed weights from another: the layout's version, `packing` (of the backend), the model's
// version, every matrix's type and shape, and a hash of samples of their bytes.
std::string packed_identity(const WeightSources& sources, const std::string& packing, const std::string& model_version);

// A cache file that was found good.
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
  ~PackedWriter();
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;

  void add(std::span<const std::byte> packed);
  // Syncs and gives the file its name. An empty string, or why there is no file.
  std::string finish();

 private:
  friend class PackedCache;
  PackedWriter(std::filesystem::path path, std::string identity);
  void write(const void* from, std::size_t bytes);
  void write_pending();

  std::filesystem::path path_;
  std::string temporary_;
  std::string identity_;
  std::string error_;  // of the first failure; everything after it does nothing
  int fd_ = -1;
  std::uint64_t offset_ = 0;          // behind what is pending
  std::vector<std::byte> pending_;    // not yet in the file: written in large aligned pieces
  std::vector<std::uint64_t> table_;  // offset and size of each entry
};

class PackedCache {
 public:
  PackedCache(std::filesystem::path folder, std::string identity);

  // Null where there is no good file of this identity with `num_entries` entries.
  std::shared_ptr<const PackedWeights> open(std::size_t num_entries) const;
  std::unique_ptr<PackedWriter> create() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string identity_;
};

}  // namespace quire
