// Pull: downloads a model from a hub into the cache in small steps, so that its caller can show progress, stop it or do
// other work in between. One thread at a time. Invariants: a pull that ends or whose process is killed loses no byte on
// the disk; the snapshot and the revision appear once every file is there.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/hub/blob_download.h"
#include "server/hub/hub_cache.h"
#include "server/hub/hub_client.h"

namespace quire::hub {

struct PullProgress {
  enum class Phase { kListing, kWaiting, kChecking, kDownloading, kDone };
  Phase phase = Phase::kListing;
  std::string file;             // path of the file under way
  std::string checksum;         // its checksum, its name in the cache
  std::int64_t file_bytes = 0;  // its bytes on the disk
  std::int64_t file_size = 0;
  std::int64_t num_bytes = 0;   // bytes on the disk, of all files
  std::int64_t size = 0;        // total bytes of all files
  std::size_t file_number = 0;  // from 1
  std::size_t num_files = 0;
};

class Pull {
 public:
  // `max_bytes`: the largest model; 0: any.
  Pull(const HubEnvironment& environment, ModelReference model, std::int64_t max_bytes, std::stop_token stop);
  ~Pull();

  // Does the next piece of work. Returns true when the model is in the cache.
  Result<bool> step();
  const PullProgress& progress() const { return progress_; }
  const ModelReference& model() const { return model_; }
  // The model pulled, or found in the cache. To be called after the last step().
  const CachedModel& result() const { return result_; }

 private:
  Result<bool> find_offline();
  Result<bool> list();
  Result<void> take_files(RemoteRevision revision);
  Result<void> check_space() const;
  Result<bool> download();
  Result<void> finish();
  void note_file();

  const bool offline_;
  const HubCache cache_;
  const std::stop_token stop_;
  const HubClient hub_;
  const ModelReference model_;
  const std::int64_t max_bytes_;
  CacheLock lock_;  // keeps the repository from being deleted
  Retries retries_;
  std::string commit_;
  std::string served_;  // the file to serve; empty: the directory
  std::vector<RemoteFile> files_;
  std::size_t next_ = 0;  // index of the next file in files_
  std::int64_t bytes_before_ = 0;
  std::unique_ptr<BlobDownload> blob_;
  PullProgress progress_;
  CachedModel result_;
};

// "1.2 GiB".
std::string size_text(std::int64_t bytes);

}  // namespace quire::hub
