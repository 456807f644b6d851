// Mailbox: a queue of one operation's events from the engine thread to the session's coroutine, which takes all at
// once, or a slice of many. put(), interrupt(), nudge(): any thread. take(): one thread at a time. Invariants: put()
// never blocks on the reader and never fails: an event without memory becomes the error that ends the operation; once
// the reader is gone, and perhaps its event loop, further events are dropped.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/request/request.h"
#include "server/wire/wakeup.h"

namespace quire {

struct Mail {
  std::size_t index;  // index of the operation's request
  OutputEvent event;
};

class Mailbox {
 public:
  explicit Mailbox(const boost::asio::any_io_executor& executor) : arrived_(executor) {}

  void put(std::size_t index, OutputEvent event) noexcept;
  bool interrupted() const;
  // Ends all waits: with an error for the client, or without one if the client has disconnected.
  void interrupt(std::optional<Error> error) noexcept;

  // Detaches the reader: the mailbox holds nothing of its event loop afterwards.
  void close() noexcept;

  // Ends one wait, with an empty batch if no event came.
  void nudge() noexcept;

  struct Batch {
    std::vector<Mail> mail;
    bool interrupted = false;
    std::optional<Error> error;
  };
  // Waits for an event or a nudge, and takes at most kSlice events; lets others of the loop run before a further slice
  // of events that came together.
  boost::asio::awaitable<Batch> take();
  static constexpr std::size_t kSlice = 64;
  // Estimated memory of the waiting events.
  std::int64_t num_bytes() const;

  // The sink for one of the operation's requests. on_end: called with each choice's end, on the engine's thread, even
  // when the reader is gone.
  using OnEnd = std::function<void(const FinishInfo&)>;
  static std::shared_ptr<OutputSink> sink(std::shared_ptr<Mailbox> mailbox, std::size_t index, OnEnd on_end = {});

 private:
  Batch next_slice();

  mutable std::mutex mutex_;
  std::vector<Mail> mail_;
  std::vector<Mail> taken_;    // the reader's: events taken with the last slice
  std::size_t num_given_ = 0;  // number of them handed out
  std::int64_t num_bytes_ = 0;
  bool interrupted_ = false;
  bool nudged_ = false;
  SharedError error_;
  const SharedError no_memory_ = std::make_shared<const Error>(out_of_memory());
  Wakeup arrived_;
};

// Reading end of its own mailbox, into which others write. Closes the mailbox when destroyed. One thread.
class MailboxReader {
 public:
  explicit MailboxReader(const boost::asio::any_io_executor& executor)
      : mailbox_(std::make_shared<Mailbox>(executor)) {}
  ~MailboxReader() { mailbox_->close(); }
  MailboxReader(const MailboxReader&) = delete;
  MailboxReader& operator=(const MailboxReader&) = delete;

  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace quire
