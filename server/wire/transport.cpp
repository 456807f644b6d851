#include "server/wire/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <utility>

namespace quire {

namespace asio = boost::asio;

namespace {

using Clock = asio::steady_timer::clock_type;

constexpr std::size_t kReadSize = 16384;
// Limit of reading ahead during an answer; a client that pipelines more waits in its own socket.
constexpr std::size_t kMaxReadAhead = 65536;
constexpr std::chrono::milliseconds kLinger{1000};
// Bytes written before other connections of the event loop may run.
constexpr std::size_t kWriteSlice = 256 * 1024;
// Limit of unsent bytes in the kernel beyond those on their way.
constexpr int kMaxUnsent = 256 * 1024;
// Interval at which a blocked write charges the bytes waiting behind it again.
constexpr std::chrono::milliseconds kChargeEvery{500};

}  // namespace

Transport::Transport(Socket socket, std::string peer, std::unique_ptr<TlsStream> tls)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      tls_(std::move(tls)),
      may_read_(socket_.get_executor()),
      may_write_(socket_.get_executor()) {
  boost::system::error_code ignored;
  socket_.non_blocking(true, ignored);
  // Both options fail on a unix socket, which has neither.
  const int on = 1;
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsent, sizeof kMaxUnsent);
}

IoResult Transport::read_some(char* data, std::size_t size) {
  // The number of a closed socket may belong to another connection by now.
  if (!socket_.is_open()) return {IoProgress::kGone, 0};
  if (tls_) return tls_->read(data, size);
  boost::system::error_code failure;
  const std::size_t count = socket_.read_some(asio::buffer(data, size), failure);
  if (failure == asio::error::would_block || failure == asio::error::try_again) return {IoProgress::kWantRead, 0};
  return {failure ? IoProgress::kGone : IoProgress::kDone, count};
}

IoResult Transport::write_some(std::string_view data) {
  if (!socket_.is_open()) return {IoProgress::kGone, 0};
  if (tls_) return tls_->write(data.data(), data.size());
  boost::system::error_code failure;
  const std::size_t count = socket_.write_some(asio::buffer(data.data(), data.size()), failure);
  if (failure == asio::error::would_block || failure == asio::error::try_again) return {IoProgress::kWantWrite, 0};
  return {failure ? IoProgress::kGone : IoProgress::kDone, count};
}

void Transport::consume(std::size_t count) {
  consumed_ += count;
  if (consumed_ < input_.size()) return;
  // An idle connection holds no buffer.
  input_ = std::string();
  consumed_ = 0;
}

void Transport::set_gone() {
  gone_ = true;
  may_read_.signal();
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

void Transport::start_read(Socket::wait_type what) {
  if (reading_ || gone_) return;
  socket_.async_wait(what,
                     [self = shared_from_this()](const boost::system::error_code& error) { self->on_readable(error); });
  reading_ = true;
}

void Transport::on_readable(const boost::system::error_code& error) {
  reading_ = false;
  if (gone_) return;
  if (error) return set_gone();
  if (consumed_ > 0) {
    input_.erase(0, consumed_);
    consumed_ = 0;
  }
  try {
    const std::size_t start = input_.size();
    IoResult result;
    do {
      // All connections of a thread share this buffer: buffers of their own, freed among small lasting allocations,
      // would leave their size in the heap for each connection that ever idled.
      thread_local std::array<char, kReadSize> buffer;
      result = read_some(buffer.data(), buffer.size());
      input_.append(buffer.data(), result.count);
    } while (tls_ && result.progress == IoProgress::kDone && tls_->has_pending());
    if (input_.size() == start) {
      if (result.progress == IoProgress::kWantRead) return start_read(Socket::wait_read);
      if (result.progress == IoProgress::kWantWrite) return start_read(Socket::wait_write);
      return set_gone();
    }
    may_read_.signal();
    if (on_gone_ && input_.size() < kMaxReadAhead) start_read(Socket::wait_read);
  } catch (const std::bad_alloc&) {  // no memory for the bytes that arrived
    close();
  }
}

void Transport::wake() noexcept {
  woken_ = true;
  may_read_.signal();
}

void Transport::cut() noexcept {
  is_cut_ = true;
  may_read_.signal();
  may_write_.signal();
}

asio::awaitable<ReadStatus> Transport::fill(std::chrono::milliseconds timeout) {
  const std::size_t before = input().size();
  const auto deadline = Clock::now() + timeout;
  start_read(Socket::wait_read);
  while (input().size() == before && !gone_ && !woken_ && !is_cut_) {
    auto signal = may_read_.next(deadline);
    co_await std::forward<decltype(signal)>(signal);
    if (!may_read_.take() && input().size() == before && !gone_ && !woken_ && !is_cut_) co_return ReadStatus::kTimeout;
  }
  if (is_cut_) {
    reset();
    co_return ReadStatus::kClosed;
  }
  if (woken_.exchange(false)) co_return ReadStatus::kWoken;
  co_return input().size() > before ? ReadStatus::kMore : ReadStatus::kClosed;
}

asio::awaitable<bool> Transport::wait(Socket::wait_type what, std::chrono::milliseconds timeout) {
  if (!waiting_) {
    socket_.async_wait(what, [self = shared_from_this()](const boost::system::error_code&) {
      self->waiting_ = false;
      self->may_write_.signal();
    });
    waiting_ = true;
  }
  const auto until = Clock::now() + timeout;
  bool signalled = true;
  while (waiting_ && signalled && !is_cut_)
    signalled = co_await may_write_.wait(until);
  co_return !waiting_;
}

asio::awaitable<bool> Transport::handshake(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (tls_) {
    const IoResult result = socket_.is_open() ? tls_->handshake() : IoResult{IoProgress::kGone, 0};
    if (result.progress == IoProgress::kDone) break;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    bool ready = false;
    if (result.progress != IoProgress::kGone && left.count() > 0) {
      ready = co_await wait(result.progress == IoProgress::kWantRead ? Socket::wait_read : Socket::wait_write, left);
    }
    if (!ready) {
      close();
      co_return false;
    }
  }
  co_return true;
}

bool Transport::charge_reader(std::int64_t num_held, std::optional<ClientBudget::Charge>& charge) {
  if (reader_limits_.budget == nullptr) return true;
  if (!charge) {
    num_charged_ = 0;
    charge.emplace(*reader_limits_.budget, reader_limits_.client, [self = shared_from_this()] { self->cut(); });
  }
  const std::int64_t held = num_held + (num_waiting_ ? num_waiting_() : 0);
  const std::int64_t before = std::exchange(num_charged_, held);
  return charge->take(held - before, reader_limits_.max_bytes);
}

asio::awaitable<bool> Transport::wait_for_reader(Socket::wait_type what, std::chrono::milliseconds timeout,
                                                 std::int64_t num_held, std::optional<ClientBudget::Charge>& charge) {
  const auto until = Clock::now() + timeout;
  while (true) {
    if (is_cut_ || !charge_reader(num_held, charge)) {
      reset();
      co_return false;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) co_return false;
    const bool ready = co_await wait(what, std::min(left, kChargeEvery));
    if (ready) co_return true;
  }
}

asio::awaitable<bool> Transport::write(std::string_view data, std::chrono::milliseconds timeout, Bytes bytes) {
  const std::int64_t num_held = bytes == Bytes::kOwn ? std::ssize(data) : 0;
  const auto began = Clock::now();
  std::optional<ClientBudget::Charge> charge;  // from the first wait to the last byte
  std::size_t num_written = 0;
  std::size_t num_at_once = 0;
  while (num_written < data.size()) {
    const IoResult result = write_some(data.substr(num_written, kWriteSlice));
    num_written += result.count;
    num_written_ += result.count;
    num_at_once += result.count;
    if (result.progress == IoProgress::kDone) {
      if (num_at_once < kWriteSlice || num_written == data.size()) continue;
      num_at_once = 0;
      co_await asio::post(socket_.get_executor(), asio::use_awaitable);
      continue;
    }
    num_at_once = 0;
    auto longest = timeout;
    if (reader_limits_.min_rate > 0) {
      const auto allowed =
          timeout + std::chrono::milliseconds(static_cast<std::int64_t>(num_written) * 1000 / reader_limits_.min_rate);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(began + allowed - Clock::now());
      longest = std::min(longest, left);
    }
    bool ready = false;
    if (result.progress != IoProgress::kGone) {
      const auto what = result.progress == IoProgress::kWantRead ? Socket::wait_read : Socket::wait_write;
      ready = co_await wait_for_reader(what, longest, num_held, charge);
    }
    if (!ready) {
      close();
      co_return false;
    }
  }
  co_return true;
}

void Transport::watch(std::function<void()> on_gone) {
  if (gone_) return on_gone();
  on_gone_ = std::move(on_gone);
  if (input().size() < kMaxReadAhead) start_read(Socket::wait_read);
}

asio::awaitable<void> Transport::close_gracefully() {
  boost::system::error_code ignored;
  if (tls_ && !gone_) tls_->say_goodbye();
  socket_.shutdown(Socket::shutdown_send, ignored);
  const auto deadline = Clock::now() + kLinger;
  while (!gone_ && Clock::now() < deadline) {
    consume(input().size());
    if (co_await fill(kLinger) != ReadStatus::kMore) break;
  }
  close();
}

void Transport::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (!gone_) set_gone();
}

void Transport::reset() {
  boost::system::error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

}  // namespace quire
