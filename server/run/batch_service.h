// BatchService: the batch thread. It owns the store of files and batches, answers the endpoints of both, and runs the
// requests of batches while the server serves. Any thread, unless noted. Invariants: no other thread touches a stored
// file; a request whose answer is not on the disk is called again, after a restart too; at most max_running requests
// are called at once.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/api/batches/batches.h"
#include "server/batch/batch_store.h"
#include "server/run/batch_call.h"
#include "server/threads/event_threads.h"

namespace quire {

class BatchService {
 public:
  // Throws StartupError if the folder cannot be used.
  BatchService(ServerState& state, const BatchOptions& options);
  ~BatchService();
  BatchService(const BatchService&) = delete;
  BatchService& operator=(const BatchService&) = delete;

  void start();
  // Stops the calls under way and unlocks the folder. The next process repeats these calls.
  void stop();
  // To be called after all callers of post() have stopped.
  void join();

  // Runs the job on the batch thread.
  void post(std::function<void()> job);

  // Batch thread only, up to options(). Null if another process has locked the folder, or after stop().
  BatchStore* store();
  // Starts the requests that are due; to be called after each change.
  void wake();
  // Begins an upload. Its last reference may be released on any thread.
  Result<std::shared_ptr<FileUpload>> begin_upload(const std::string& owner);
  const BatchOptions& options() const { return options_; }

  // Any thread may call the functions below.
  BatchStore::Counts counts() const;
  bool is_busy() const { return is_busy_.load(); }  // there is work to do

 private:
  struct Running {
    BatchLine line;
    LineControl control;
    bool has_ended = false;
    bool is_settled = true;  // its line is answered, dropped or back in the store
  };
  struct LineEnd;

  void advance();
  void start_lines();
  bool is_serving() const;
  void end_lines();
  boost::asio::awaitable<void> run_line(std::shared_ptr<Running> running, LineEnd end);
  boost::asio::awaitable<void> keep(std::shared_ptr<Running> running, LineAnswer answer);
  // Returns whether to call a failed request again.
  bool tries_again(const Running& running, const LineAnswer& answer);
  void plan_next(bool has_more);
  void publish();

  ServerState& state_;
  const BatchOptions options_;
  BatchStore store_;
  std::map<std::int64_t, std::shared_ptr<Running>> running_;
  std::int64_t num_begun_ = 0;
  std::map<std::string, Clock::time_point> paused_until_;          // by owner
  std::map<std::pair<std::string, std::int64_t>, int> num_tries_;  // attempts of requests that failed
  bool stopping_ = false;
  bool said_locked_ = false;
  mutable std::mutex mutex_;
  BatchStore::Counts counts_;  // guarded by mutex_
  std::atomic<bool> is_busy_{false};
  EventThreads thread_;  // destroyed before what its jobs use
  boost::asio::steady_timer timer_;
};

}  // namespace quire
