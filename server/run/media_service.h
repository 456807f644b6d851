// MediaService: loads files and URLs of calls and decodes and prepares their pieces, on the media threads; stored files
// are read on the batch thread. Any thread, except start(), stop() and join(): one at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "server/media/call_media.h"
#include "server/threads/media_pool.h"

namespace quire {

class BatchService;

class MediaService {
 public:
  using Done = std::function<void(std::optional<Error>)>;

  // `batches`: the stored files that pictures may name; null: none. It must outlive the service.
  MediaService(const MediaOptions& options, BatchService* batches);

  void start() { pool_.start(); }
  void stop() { pool_.stop(); }
  void join() { pool_.join(); }

  // `client`: pieces are limited per client. `computes`: false for calls that only count tokens.
  std::shared_ptr<CallMedia> begin(const std::string& key_name, const std::string& client, bool computes) const {
    return std::make_shared<CallMedia>(store_, options_, key_name, client, computes);
  }
  // Calls `done` once each wanted piece is loaded or has failed; failures are kept with their pieces. The callback gets
  // an error if the queue is full. It may run on any thread, also before this returns.
  void work(const std::shared_ptr<CallMedia>& media, Done done);

  MediaStore::Stats stats() const { return store_->stats(); }
  std::size_t num_waiting() const { return pool_.num_waiting(); }

 private:
  Result<MediaBytes> load(CallMedia& media, const MediaSource& source);
  Result<MediaBytes> load_stored(CallMedia& media, const std::string& id);
  void post_stored(std::function<void()> job);

  const MediaOptions options_;
  BatchService* const batches_;
  const std::shared_ptr<MediaStore> store_;
  MediaPool pool_;
};

}  // namespace quire
