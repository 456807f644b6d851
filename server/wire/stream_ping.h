// StreamPing: wakes a stream's mailbox where nothing was sent for an interval, so that a comment line shows that the
// stream lives. One event loop; alive until stop().
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "server/wire/mailbox.h"

namespace quire {

class StreamPing : public std::enable_shared_from_this<StreamPing> {
 public:
  static std::shared_ptr<StreamPing> start(const boost::asio::any_io_executor& executor,
                                           std::shared_ptr<Mailbox> mailbox, std::chrono::milliseconds interval);
  StreamPing(const boost::asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox,
             std::chrono::milliseconds interval);
  void note_sent() { sent_ = Clock::now(); }
  // Returns whether the interval passed since the last call that returned true.
  bool take_due() { return std::exchange(is_due_, false); }
  void stop();

 private:
  void wait();

  boost::asio::steady_timer timer_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::chrono::milliseconds interval_;
  Clock::time_point sent_ = Clock::now();
  bool is_due_ = false;
  bool is_stopped_ = false;
};

}  // namespace quire
