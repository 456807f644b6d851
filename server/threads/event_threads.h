// EventThreads: named threads, each with its own event loop. Any thread, except start() and join(): one thread at a
// time. A throwing handler ends neither its loop nor its thread.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace quire {

class EventThreads {
 public:
  // Threads are called "name-0", "name-1", ... A shared pool has one loop that all threads serve.
  EventThreads(std::string name, std::size_t num_threads, bool shared_loop);
  ~EventThreads() {
    stop();
    join();
  }

  // Called on the first thread after a handler threw, to restart loops that ended with it. To be set before start().
  void on_failure(std::function<void()> revive) { revive_ = std::move(revive); }
  void start();
  // Lets loops end once they have no work left.
  void release() { guards_.clear(); }
  // Ends the loops at once.
  void stop();
  // Waits until the loops have ended.
  void join();

  // The loops, round robin.
  boost::asio::io_context& next() { return *contexts_[next_++ % contexts_.size()]; }
  boost::asio::io_context& first() { return *contexts_.front(); }

 private:
  using Guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

  void run(std::size_t number);

  std::string name_;
  std::size_t num_threads_;
  std::function<void()> revive_;
  std::vector<std::unique_ptr<boost::asio::io_context>> contexts_;
  std::vector<Guard> guards_;
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace quire
