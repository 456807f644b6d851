// FileStore: the files that clients upload and download, on disk, by owner (the API key's name). Batch thread only.
// Invariants: a file exists while its description does, which is written last and removed first; uploads and answers,
// of all owners and of each, never exceed their limits, also while they are written; owners are separate.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/batch/batch_options.h"
#include "server/batch/disk_file.h"

namespace quire {

struct StoredFile {
  std::string id;
  std::string owner;
  std::string filename;
  std::string purpose;
  std::int64_t bytes = 0;
  std::int64_t created_at = 0;  // Unix seconds
  std::int64_t expires_at = 0;
};

// Counts the stored bytes of each owner.
class StorageUse {
 public:
  explicit StorageUse(const BatchOptions& options) : options_(options) {}
  // Reserves bytes, or refuses beyond a limit: 507 "storage_full".
  Result<void> take(const std::string& owner, std::int64_t bytes);
  // Adds bytes that are stored already, without checking limits.
  void add(const std::string& owner, std::int64_t bytes);
  void give_back(const std::string& owner, std::int64_t bytes) { add(owner, -bytes); }
  std::int64_t total() const { return total_; }

 private:
  const BatchOptions options_;
  std::int64_t total_ = 0;
  std::map<std::string, std::int64_t> by_owner_;
};

// A file being written; it is removed again unless FileStore::finish() took it.
class FileUpload {
 public:
  // `is_paid`: its storage was reserved before.
  FileUpload(StorageUse& use, std::filesystem::path path, DiskFile file, std::string owner, bool is_paid)
      : use_(use), path_(std::move(path)), file_(std::move(file)), owner_(std::move(owner)), is_paid_(is_paid) {}
  ~FileUpload();
  FileUpload(const FileUpload&) = delete;
  FileUpload& operator=(const FileUpload&) = delete;

  Result<void> write(std::string_view bytes);
  std::int64_t num_bytes() const { return num_bytes_; }

 private:
  friend class FileStore;
  StorageUse& use_;
  const std::filesystem::path path_;
  DiskFile file_;
  const std::string owner_;
  const bool is_paid_;
  std::int64_t num_bytes_ = 0;
  bool is_kept_ = false;
};

class FileStore {
 public:
  FileStore(const BatchOptions& options, StorageUse& use);

  // Loads the files of an earlier process and removes its unfinished ones.
  Result<void> load();

  // `id` empty: a new file, within the owner's limit on files. Otherwise an answer file that replaces the file of that
  // id; its storage was reserved as the answers were recorded.
  Result<std::shared_ptr<FileUpload>> begin(const std::string& owner, const std::string& id = {});
  // Makes the whole content of `upload` the file; sets its id, owner and size.
  Result<StoredFile> finish(FileUpload& upload, StoredFile file);

  // Null if this owner has no such file.
  const StoredFile* find(const std::string& id, const std::string& owner) const;
  std::vector<const StoredFile*> of_owner(const std::string& owner) const;  // in the order of creation
  Result<DiskFile> open(const StoredFile& file) const;
  void remove(const std::string& id);
  // Files that expired by `now`.
  std::vector<std::string> expired(std::int64_t now) const;

  std::size_t count() const { return files_.size(); }

 private:
  std::filesystem::path data_path(const std::string& id) const { return folder_ / id; }
  std::filesystem::path description_path(const std::string& id) const { return folder_ / (id + ".json"); }
  bool load_one(const std::filesystem::path& description);

  const BatchOptions options_;
  const std::filesystem::path folder_;
  StorageUse& use_;
  std::map<std::string, StoredFile> files_;
  std::map<std::string, std::int64_t> num_by_owner_;
};

// Checks that an id has this server's form and cannot lead to another folder.
bool is_stored_id(std::string_view id);

}  // namespace quire
