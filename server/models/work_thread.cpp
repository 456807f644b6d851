#include "server/models/work_thread.h"

#include <pthread.h>

#include <exception>

#include "core/base/log.h"

namespace quire {

namespace {

// Pause after a look around that failed.
constexpr std::chrono::seconds kLookAfterFailure{1};

// Errors of files are reported by the work itself; anything else is mostly a lack of memory.
template <class Work>
void run_reported(const Work& work) {
  try {
    work();
  } catch (const std::exception& failure) {
    log::error("models: {}", failure.what());
  }
}

}  // namespace

WorkThread::WorkThread(const char* name, std::function<std::optional<Clock::time_point>()> look_around)
    : look_around_(std::move(look_around)), thread_([this, name] {
        pthread_setname_np(pthread_self(), name);
        run();
      }) {}

void WorkThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;  // `work` is destroyed by the caller, outside the lock
    posted_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void WorkThread::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(posted_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void WorkThread::run() {
  while (true) {
    std::optional<Clock::time_point> next = Clock::now() + kLookAfterFailure;
    run_reported([&] { next = look_around_(); });
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      const auto something = [this] { return stopped_ || !posted_.empty(); };
      if (next) {
        changed_.wait_until(lock, *next, something);
      } else {
        changed_.wait(lock, something);
      }
      if (stopped_) return;
      if (posted_.empty()) continue;
      work = std::move(posted_.front());
      posted_.pop_front();
    }
    run_reported(work);
  }
}

}  // namespace quire
