#include "server/wire/mailbox.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <iterator>

namespace quire {

namespace asio = boost::asio;

namespace {

// Estimated memory of an event, equal before and after its wait.
std::int64_t bytes_of(const OutputEvent& event) {
  std::size_t size = sizeof(Mail) + event.tokens.size() * sizeof(TokenId) + event.embedding.size() * sizeof(float);
  for (const TokenLogprob& each : event.logprobs)
    size += sizeof each + each.top.size() * sizeof(each.top[0]);
  for (const auto& each : event.prompt_logprobs)
    size += sizeof each + (each ? each->top.size() * sizeof(each->top[0]) : 0);
  return static_cast<std::int64_t>(size);
}

class MailboxSink final : public OutputSink {
 public:
  MailboxSink(std::shared_ptr<Mailbox> mailbox, std::size_t index, Mailbox::OnEnd on_end)
      : mailbox_(std::move(mailbox)), index_(index), on_end_(std::move(on_end)) {}
  // Counts before sending, so that a client that has its whole answer finds it in the metrics.
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

void Mailbox::put(std::size_t index, OutputEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  const bool wake = mail_.empty();
  num_bytes_ += bytes_of(event);
  try {
    mail_.push_back(Mail{index, std::move(event)});
  } catch (const std::bad_alloc&) {
    interrupted_ = true;
    error_ = no_memory_;
  }
  // Signals once per emptying: a late reader takes everything at once.
  if (wake) arrived_.signal();
}

void Mailbox::close() noexcept {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  arrived_.close();
}

bool Mailbox::interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

void Mailbox::interrupt(std::optional<Error> error) noexcept {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  interrupted_ = true;
  try {
    if (error) error_ = std::make_shared<const Error>(*std::move(error));
  } catch (const std::bad_alloc&) {
    error_ = no_memory_;
  }
  arrived_.signal();
}

void Mailbox::nudge() noexcept {
  const std::lock_guard lock(mutex_);
  nudged_ = true;
  arrived_.signal();
}

std::int64_t Mailbox::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

// Requires the lock.
Mailbox::Batch Mailbox::next_slice() {
  Batch batch;
  nudged_ = false;
  if (num_given_ == taken_.size()) {
    taken_.clear();
    num_given_ = 0;
    taken_.swap(mail_);
    mail_.reserve(taken_.size());  // reserves here, so that the engine's put() seldom must
  }
  const std::size_t count = std::min(kSlice, taken_.size() - num_given_);
  if (count == taken_.size()) {
    batch.mail.swap(taken_);
    num_given_ = 0;
  } else {
    const auto first = taken_.begin() + static_cast<std::ptrdiff_t>(num_given_);
    batch.mail.assign(std::move_iterator(first), std::move_iterator(first + static_cast<std::ptrdiff_t>(count)));
    num_given_ += count;
  }
  for (const Mail& each : batch.mail)
    num_bytes_ -= bytes_of(each.event);
  batch.interrupted = interrupted_;
  if (error_ != nullptr) batch.error = *error_;
  return batch;
}

asio::awaitable<Mailbox::Batch> Mailbox::take() {
  if (num_given_ < taken_.size()) {
    const auto executor = co_await asio::this_coro::executor;
    co_await asio::post(executor, asio::use_awaitable);
  }
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_ || nudged_ || !mail_.empty() || num_given_ < taken_.size()) co_return next_slice();
    }
    co_await arrived_.wait();
  }
}

std::shared_ptr<OutputSink> Mailbox::sink(std::shared_ptr<Mailbox> mailbox, std::size_t index, OnEnd on_end) {
  return std::make_shared<MailboxSink>(std::move(mailbox), index, std::move(on_end));
}

}  // namespace quire
