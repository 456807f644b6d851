#include "server/wire/wakeup.h"

namespace quire {

namespace asio = boost::asio;

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

bool Wakeup::take() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(is_signalled_, false);
}

asio::awaitable<void> Wakeup::wait_for(const std::function<void()>& start) {
  auto operation = initiate([this, &start](auto handler) {
    {
      const std::lock_guard lock(mutex_);
      timer_->expires_at(Time::max());
      timer_->async_wait(std::move(handler));
    }
    start();
  });
  co_await std::forward<decltype(operation)>(operation);
  take();
}

asio::awaitable<bool> Wakeup::wait(Time until) {
  auto operation = next(until);
  co_await std::forward<decltype(operation)>(operation);
  co_return take();
}

}  // namespace quire
