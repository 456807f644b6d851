#include "core/base/log_buffer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace quire {

namespace {

// Interval at which a thread that waits for a reader checks whether to give up.
constexpr int kLookMs = 100;

std::uint64_t num_lines(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

struct LogBuffer::State {
  explicit State(Options given) : options(std::move(given)) {}

  void run();
  // Returns what could not be written.
  std::string_view write(std::string_view text) const;

  const Options options;
  std::mutex mutex;
  std::condition_variable changed;
  std::string pending;
  std::uint64_t num_dropped = 0;
  std::uint64_t num_unannounced = 0;
  bool is_writing = false;
  bool stopping = false;
  bool ended = false;
  std::atomic<bool> abandoned{false};
};

std::string_view LogBuffer::State::write(std::string_view text) const {
  while (!text.empty() && !abandoned.load()) {
    pollfd reader{options.descriptor, POLLOUT, 0};
    const int ready = ::poll(&reader, 1, kLookMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    // A ready pipe takes this many bytes without blocking.
    const ssize_t count = ::write(options.descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (count < 0 && errno != EINTR && errno != EAGAIN) break;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  return text;
}

void LogBuffer::State::run() {
  pthread_setname_np(pthread_self(), "log");
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !pending.empty(); });
    if (pending.empty()) break;
    std::string taken = std::exchange(pending, {});
    const std::uint64_t unannounced = std::exchange(num_unannounced, 0);
    is_writing = true;
    lock.unlock();
    try {
      if (unannounced > 0) taken += options.announce(unannounced);
    } catch (const std::exception&) {  // the counter includes these lines
    }
    const std::uint64_t num_lost = num_lines(write(taken));
    lock.lock();
    is_writing = false;
    num_dropped += num_lost;
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

LogBuffer::LogBuffer(Options options)
    : state_(std::make_shared<State>(std::move(options))), thread_([state = state_] { state->run(); }) {}

LogBuffer::~LogBuffer() {
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    const auto has_ended = [this] { return state_->ended; };
    if (!state_->changed.wait_for(lock, state_->options.last_wait, has_ended)) {
      state_->abandoned = true;
      state_->changed.wait_for(lock, std::chrono::milliseconds(3 * kLookMs), has_ended);
    }
    ended = state_->ended;
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void LogBuffer::append(std::string_view line) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    // After a dropped line all lines are dropped until the thread takes the buffer, so that the announcement stands in
    // their place.
    bool has_room = state_->num_unannounced == 0 && line.size() <= state_->options.max_bytes - state_->pending.size();
    try {
      if (has_room) state_->pending += line;
    } catch (const std::exception&) {
      has_room = false;
    }
    if (!has_room) {
      ++state_->num_dropped;
      ++state_->num_unannounced;
    }
  }
  state_->changed.notify_all();
}

std::uint64_t LogBuffer::num_dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->num_dropped;
}

bool LogBuffer::flush(std::chrono::milliseconds longest) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, longest, [this] { return state_->pending.empty() && !state_->is_writing; });
}

}  // namespace quire
