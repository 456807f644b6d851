// Wakeup: ends the wait of one coroutine from any thread, and takes no memory for that: a timer that waits is
// cancelled. signal(), close(): Any thread. wait(): the coroutine's thread, one at a time. Invariant: a signal that
// comes before its wait ends that wait at once.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace quire {

class Wakeup {
  template <typename Begin>
  static auto initiate(Begin begin) {
    constexpr auto kTuple = boost::asio::as_tuple(boost::asio::deferred);
    return boost::asio::async_initiate<decltype(kTuple), void(boost::system::error_code)>(std::move(begin), kTuple);
  }

 public:
  using Time = boost::asio::steady_timer::time_point;

  explicit Wakeup(const boost::asio::any_io_executor& executor) : timer_(std::in_place, executor) {}

  void signal() noexcept;
  // Detaches from the event loop; further signals are dropped.
  void close() noexcept;
  // True: it was signalled; false: the time came first.
  boost::asio::awaitable<bool> wait(Time until = Time::max());
  // A wait in the caller's own frame, for connections that idle: co_await it, then take() the signal.
  auto next(Time until) {
    return initiate([this, until](auto handler) {
      const std::lock_guard lock(mutex_);
      timer_->expires_at(is_signalled_ ? Time::min() : until);
      timer_->async_wait(std::move(handler));
    });
  }
  // True: it was signalled.
  bool take() noexcept;
  // Waits for the signal of what `start` begins. It is called once the wait has all its memory, and may not throw.
  boost::asio::awaitable<void> wait_for(const std::function<void()>& start);

 private:
  std::mutex mutex_;
  std::optional<boost::asio::steady_timer> timer_;  // empty: closed
  bool is_signalled_ = false;
};

}  // namespace quire
