// EndWatch: reports a process that does not end in time, because a thread hangs in a disk or a driver. Any thread. Its
// own thread is there from the beginning: at the end the system may refuse one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace quire {

class EndWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Calls `overdue` once the time has passed, at most once, on the watch's thread. It must not throw.
  explicit EndWatch(std::function<void()> overdue);
  ~EndWatch();  // the end has come
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  // Sets the end's limit to this time from now, replacing an earlier one.
  void expect_within(std::chrono::milliseconds time) noexcept;

 private:
  void run();

  const std::function<void()> overdue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> due_;  // none: no end is expected yet
  bool over_ = false;
  std::thread thread_;  // uses all of the above
};

// Names of this process's threads except the caller's and the compute threads: "engine, kv-io".
std::string names_of_threads();

}  // namespace quire
