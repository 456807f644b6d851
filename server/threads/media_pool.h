// MediaPool: the threads that fetch, decode and prepare pictures. Any thread, except start() and join(): one thread at
// a time. Jobs wait by client, and the client that has used the least time goes next. The number of waiting jobs is
// limited, in total and per client. With several threads, one client's jobs never have all of them. They run at a low
// priority.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.h"
#include "server/media/media_options.h"
#include "server/threads/text_pool.h"

namespace quire {

class MediaPool {
 public:
  explicit MediaPool(const MediaOptions& options);
  ~MediaPool() {
    stop();
    join();
  }
  MediaPool(const MediaPool&) = delete;
  MediaPool& operator=(const MediaPool&) = delete;

  void start();
  // Queues all jobs or none: 503 if the queue is full, 429 if the client's share of it is. Jobs must not throw.
  Result<void> post(const std::string& client, std::vector<TextSchedule::Job> jobs);
  // Stopped by stop(), to end waits for the network.
  std::stop_token cut() const { return cut_.get_token(); }
  // No further job begins.
  void stop();
  void join();
  std::size_t num_waiting() const;

 private:
  void run(int number);

  const MediaOptions options_;
  std::stop_source cut_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TextSchedule schedule_;
  std::map<std::string, std::int64_t, std::less<>> num_waiting_;  // keys: clients
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
