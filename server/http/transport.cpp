#include "server/http/transport.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kReadSize = 16384;
// Read ahead of the request being answered; a client that pipelines more waits in its own socket.
constexpr std::size_t kMaxReadAhead = 65536;
constexpr std::chrono::milliseconds kLinger{1000};

}  // namespace

Transport::Transport(Socket socket)
    : socket_(std::move(socket)), read_timer_(socket_.get_executor()), write_timer_(socket_.get_executor()) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
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
  read_timer_.cancel();
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

void Transport::start_read() {
  if (reading_ || gone_) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) { self->on_readable(error); });
}

void Transport::on_readable(const boost::system::error_code& error) {
  reading_ = false;
  if (error) return set_gone();
  if (consumed_ > 0) {
    input_.erase(0, consumed_);
    consumed_ = 0;
  }
  const std::size_t before = input_.size();
  input_.resize(before + kReadSize);
  boost::system::error_code failure;
  const std::size_t count = socket_.read_some(asio::buffer(input_.data() + before, kReadSize), failure);
  input_.resize(before + count);
  if (failure == asio::error::would_block || failure == asio::error::try_again) return start_read();
  if (failure) return set_gone();
  read_timer_.cancel();
  if (on_gone_ && input_.size() < kMaxReadAhead) start_read();
}

asio::awaitable<ReadStatus> Transport::fill(std::chrono::milliseconds timeout) {
  const std::size_t before = input().size();
  const auto deadline = asio::steady_timer::clock_type::now() + timeout;
  start_read();
  while (input().size() == before && !gone_) {
    read_timer_.expires_at(deadline);
    const auto [error] = co_await read_timer_.async_wait(kUseTuple);
    if (!error && input().size() == before && !gone_) co_return ReadStatus::kTimeout;
  }
  co_return input().size() > before ? ReadStatus::kMore : ReadStatus::kClosed;
}

asio::awaitable<bool> Transport::write(std::string_view data, std::chrono::milliseconds timeout) {
  while (!data.empty()) {
    boost::system::error_code failure;
    data.remove_prefix(socket_.write_some(asio::buffer(data.data(), data.size()), failure));
    if (failure == asio::error::would_block || failure == asio::error::try_again) {
      auto writable = std::make_shared<bool>(false);
      socket_.async_wait(asio::ip::tcp::socket::wait_write,
                         [self = shared_from_this(), writable](const boost::system::error_code&) {
                           *writable = true;
                           self->write_timer_.cancel();
                         });
      write_timer_.expires_after(timeout);
      co_await write_timer_.async_wait(kUseTuple);
      if (*writable) continue;
      close();
      co_return false;
    }
    if (failure) {
      close();
      co_return false;
    }
  }
  co_return true;
}

void Transport::watch(std::function<void()> on_gone) {
  if (gone_) return on_gone();
  on_gone_ = std::move(on_gone);
  if (input().size() < kMaxReadAhead) start_read();
}

asio::awaitable<void> Transport::close_gracefully() {
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  const auto deadline = asio::steady_timer::clock_type::now() + kLinger;
  while (!gone_ && asio::steady_timer::clock_type::now() < deadline) {
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

std::string Transport::peer() const {
  boost::system::error_code failure;
  const auto endpoint = socket_.remote_endpoint(failure);
  return failure ? std::string("unknown") : endpoint.address().to_string();
}

}  // namespace quire
