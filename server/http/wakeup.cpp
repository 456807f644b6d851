#include "server/http/wakeup.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

}  // namespace

// The timer is touched under the lock alone, so any thread may cancel it.
void Wakeup::signal() noexcept {
  const std::lock_guard lock(mutex_);
  is_signalled_ = true;
  if (timer_) timer_->cancel();
}

void Wakeup::close() noexcept {
  const std::lock_guard lock(mutex_);
  timer_.reset();
}

asio::awaitable<void> Wakeup::wait_for(const std::function<void()>& start) {
  auto begin = [this, &start](auto handler) {
    {
      const std::lock_guard lock(mutex_);
      timer_->expires_at(Time::max());
      timer_->async_wait(std::move(handler));
    }
    start();
  };
  co_await asio::async_initiate<decltype(kTuple), void(boost::system::error_code)>(begin, kTuple);
  const std::lock_guard lock(mutex_);
  is_signalled_ = false;
}

asio::awaitable<bool> Wakeup::wait(Time until) {
  auto begin = [this, until](auto handler) {
    const std::lock_guard lock(mutex_);
    timer_->expires_at(is_signalled_ ? Time::min() : until);
    timer_->async_wait(std::move(handler));
  };
  co_await asio::async_initiate<decltype(kTuple), void(boost::system::error_code)>(begin, kTuple);
  const std::lock_guard lock(mutex_);
  co_return std::exchange(is_signalled_, false);
}

}  // namespace quire
