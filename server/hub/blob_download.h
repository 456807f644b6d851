// BlobDownload: downloads one file of a repository into the cache in small steps. It continues from the bytes that an
// earlier process left in CHECKSUM.incomplete. One thread at a time. Invariants: the blob gets its name only after its
// checksum was verified and its bytes are on the disk; no byte is requested twice unless the checksum turns out wrong;
// two processes never write one blob.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "server/hub/checksum.h"
#include "server/hub/hub_cache.h"
#include "server/hub/hub_client.h"

namespace quire::hub {

// Waits between attempts, doubling each time; the number of attempts is limited.
class Retries {
 public:
  // Waits before the next attempt. Returns false if there is none, or if stopped.
  bool wait(const Error& error, const std::stop_token& stop);
  void reset() { num_ = 0; }

 private:
  int num_ = 0;
};

class BlobDownload {
 public:
  enum class Phase { kLocking, kWaiting, kChecking, kConnecting, kReading, kDone };

  BlobDownload(const HubClient& hub, const HubCache& cache, ModelReference model, std::string commit, RemoteFile file,
               std::stop_token stop);
  ~BlobDownload();
  BlobDownload(const BlobDownload&) = delete;
  BlobDownload& operator=(const BlobDownload&) = delete;

  // Does the next piece of work. Returns true when the blob is complete.
  Result<bool> step();
  Phase phase() const { return phase_; }
  // Bytes of the file on the disk.
  std::int64_t num_bytes() const { return num_bytes_; }

 private:
  Result<void> take_lock();
  Result<void> check_more();
  Result<void> connect();
  Result<void> read_piece();
  Result<void> complete();
  // Starts again with an empty file; an error if that happened too often.
  Result<void> start_over(const std::string& why);
  Result<void> retry(const Error& error);
  Result<void> store(std::string_view bytes);
  tl::unexpected<Error> file_error(const char* what) const;

  const HubClient& hub_;
  const HubCache& cache_;
  const ModelReference model_;
  const std::string commit_;
  const RemoteFile file_;
  const std::filesystem::path path_;  // path of the incomplete file
  const std::stop_token stop_;
  Phase phase_ = Phase::kLocking;
  CacheLock lock_;
  int descriptor_ = -1;
  std::int64_t num_bytes_ = 0;    // in the file and in the checksum
  std::int64_t num_present_ = 0;  // in the file when it was opened
  std::optional<Checksum> checksum_;
  OpenFile source_;
  Retries retries_;
  int num_restarts_ = 0;
};

}  // namespace quire::hub
