// HubCache: the folder of downloaded models in the layout of Hugging Face's programs, which share it:
// models--OWNER--NAME with blobs/CHECKSUM, snapshots/COMMIT/PATH (links to blobs) and refs/REVISION (a commit).
// Any thread; processes exclude each other by CacheLock. Invariants: a blob under its own name is whole; a link and a
// ref appear by one rename.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/hub/hub_client.h"
#include "server/models/model_reference.h"

namespace quire::hub {

// A lock on one file's name by flock(2). The lock of a blob, .locks/models--OWNER--NAME/CHECKSUM.lock, is shared with
// huggingface_hub.
class CacheLock {
 public:
  enum class Mode { kShared, kExclusive };

  CacheLock() = default;
  ~CacheLock() { release(); }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

  // Returns false if another process, or another pull of this one, holds the lock.
  Result<bool> try_take(const std::filesystem::path& path, Mode mode);
  void release();

 private:
  int file_ = -1;
};

// A model as stored in the cache.
struct CachedModel {
  ModelReference reference;  // `wanted` selects one of a repository's models
  std::string commit;
  std::filesystem::path path;  // path for `quire serve`; empty: files are missing
  std::int64_t num_bytes = 0;
};

// A repository's blobs that are partly downloaded.
struct PartialDownload {
  std::string repository;
  std::int64_t num_bytes = 0;
};

struct CacheContent {
  std::vector<CachedModel> models;
  std::vector<PartialDownload> partial;
};

class HubCache {
 public:
  explicit HubCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path repository_folder(const std::string& repository) const;
  std::filesystem::path blob(const std::string& repository, const std::string& checksum) const;
  // Lock to hold exclusively while downloading that blob.
  std::filesystem::path blob_lock(const std::string& repository, const std::string& checksum) const;
  // Lock to share while downloading from this repository, and to hold exclusively while deleting from it.
  std::filesystem::path repository_lock(const std::string& repository) const;
  std::filesystem::path snapshot(const std::string& repository, const std::string& commit) const;

  bool has_blob(const std::string& repository, const RemoteFile& file) const;
  // Makes a snapshot's file a link to its blob.
  Result<void> link(const std::string& repository, const std::string& commit, const RemoteFile& file) const;
  Result<void> set_revision(const ModelReference& model, const std::string& commit) const;

  // The model as it was downloaded last, without asking the hub. Errors: 404 "model_not_cached".
  Result<CachedModel> find(const ModelReference& model) const;
  CacheContent content() const;
  // Deletes a model, or the whole repository if `wanted` is empty; returns the bytes freed. Errors: 404; 409 while it
  // is being downloaded.
  Result<std::int64_t> remove(const ModelReference& model) const;

 private:
  tl::unexpected<Error> not_cached(const ModelReference& model, const std::string& why) const;
  std::optional<std::string> commit_of(const ModelReference& model) const;
  std::vector<std::string> files_of(const std::string& repository, const std::string& commit) const;
  void add_models(const std::string& repository, CacheContent& content) const;
  Result<std::int64_t> remove_locked(const ModelReference& model) const;
  std::int64_t drop_unused_blobs(const std::string& repository) const;

  std::filesystem::path folder_;
};

}  // namespace quire::hub
