#include "server/ops/end_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace quire {

EndWatch::EndWatch(std::function<void()> overdue) : overdue_(std::move(overdue)), thread_([this] { run(); }) {}

EndWatch::~EndWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EndWatch::expect_within(std::chrono::milliseconds time) noexcept {
  {
    const std::lock_guard lock(mutex_);
    due_ = Clock::now() + time;
  }
  changed_.notify_all();
}

void EndWatch::run() {
  pthread_setname_np(pthread_self(), "end-watch");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_ || due_; });
  while (!over_) {
    const Clock::time_point due = *due_;
    changed_.wait_until(lock, due, [&] { return over_ || *due_ != due; });
    if (over_ || Clock::now() < *due_) continue;
    lock.unlock();
    overdue_();
    return;
  }
}

std::string names_of_threads() {
  // Compute threads end with their pool, and the log's thread after everything else.
  constexpr const char* kCompute = "cpu-";
  constexpr const char* kLog = "log";
  std::set<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at("/proc/self/task", failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string id = at->path().filename();
    std::string name;
    std::getline(std::ifstream(at->path() / "comm"), name);
    if (id == std::to_string(::gettid()) || name == kLog || name.starts_with(kCompute)) continue;
    names.insert(id == std::to_string(::getpid()) ? "main" : name);
  }
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace quire
