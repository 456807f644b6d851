#include "server/wire/stream_ping.h"

namespace quire {

std::shared_ptr<StreamPing> StreamPing::start(const boost::asio::any_io_executor& executor,
                                              std::shared_ptr<Mailbox> mailbox, std::chrono::milliseconds interval) {
  auto ping = std::make_shared<StreamPing>(executor, std::move(mailbox), interval);
  ping->wait();
  return ping;
}

StreamPing::StreamPing(const boost::asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox,
                       std::chrono::milliseconds interval)
    : timer_(executor), mailbox_(std::move(mailbox)), interval_(interval) {}

void StreamPing::stop() {
  is_stopped_ = true;
  timer_.cancel();
}

// A single timer serves quiet and busy streams: sending only moves the next check.
void StreamPing::wait() {
  timer_.expires_at(sent_ + interval_);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->is_stopped_) return;
    const Clock::time_point now = Clock::now();
    if (now >= self->sent_ + self->interval_) {
      self->sent_ = now;
      self->is_due_ = true;
      self->mailbox_->nudge();
    }
    self->wait();
  });
}

}  // namespace quire
