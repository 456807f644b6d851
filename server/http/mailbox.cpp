#include "server/http/mailbox.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire {

namespace asio = boost::asio;

namespace {

class MailboxSink final : public OutputSink {
 public:
  MailboxSink(std::shared_ptr<Mailbox> mailbox, std::size_t index, Mailbox::OnEnd on_end)
      : mailbox_(std::move(mailbox)), index_(index), on_end_(std::move(on_end)) {}
  // Counted before it is seen: a client that has its whole answer finds it in the metrics.
  void send(OutputEvent event) noexcept override {
    if (event.finish && on_end_) on_end_(*event.finish);
    mailbox_->put(index_, std::move(event));
  }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::size_t index_;
  const Mailbox::OnEnd on_end_;
};

}  // namespace

// Under the lock, so that close() waits for it.
void Mailbox::signal() {
  if (arrived_) arrived_->try_send(boost::system::error_code());
}

void Mailbox::put(std::size_t index, OutputEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  const bool wake = mail_.empty();
  try {
    mail_.push_back(Mail{index, std::move(event)});
  } catch (const std::bad_alloc&) {
    interrupted_ = true;
    error_ = no_memory_;
  }
  // One signal per emptying: a reader that is behind finds everything in one go.
  if (wake) signal();
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  arrived_.reset();
}

bool Mailbox::interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

void Mailbox::interrupt(std::optional<Error> error) {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  interrupted_ = true;
  if (error) error_ = std::make_shared<const Error>(*std::move(error));
  signal();
}

void Mailbox::nudge() {
  const std::lock_guard lock(mutex_);
  nudged_ = true;
  signal();
}

asio::awaitable<Mailbox::Batch> Mailbox::take() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_ || nudged_ || !mail_.empty()) {
        Batch batch;
        nudged_ = false;
        batch.mail.swap(mail_);
        mail_.reserve(batch.mail.size());  // here, so that the engine's put() seldom has to
        batch.interrupted = interrupted_;
        if (error_ != nullptr) batch.error = *error_;
        co_return batch;
      }
    }
    co_await arrived_->async_receive(asio::as_tuple(asio::use_awaitable));
  }
}

std::shared_ptr<OutputSink> Mailbox::sink(std::shared_ptr<Mailbox> mailbox, std::size_t index, OnEnd on_end) {
  return std::make_shared<MailboxSink>(std::move(mailbox), index, std::move(on_end));
}

}  // namespace quire
