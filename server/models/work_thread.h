// WorkThread: a thread that runs posted work in order, and looks around at times of its own choosing in between.
// post(): any thread. Invariant: posted work runs on this thread or, once stopped, is destroyed without running on the
// thread that posted or stopped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/result.h"
#include "core/request/request.h"

namespace quire {

class WorkThread {
 public:
  // `look_around` runs at intervals and returns when to run again; nullopt: after the next piece of work.
  WorkThread(const char* name, std::function<std::optional<Clock::time_point>()> look_around);
  ~WorkThread() { stop(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void post(std::function<void()> work);
  // Finishes running work, drops the rest, joins. Idempotent; not from the thread itself.
  void stop();

 private:
  void run();

  std::function<std::optional<Clock::time_point>()> look_around_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> posted_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace quire
