#include "server/fleet/redis_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;
constexpr std::size_t kCommandsAtOnce = 64;
constexpr int kLooksAtOnce = 5;           // checks for a stall within the patience
constexpr std::chrono::seconds kIdle{1};  // a connection without a command for so long is pinged
// Rate at which the bytes since a command extend the patience for its reply.
constexpr double kSlowestBytesPerSecond = 8e6;

}  // namespace

RedisCommand redis_command(const std::vector<std::string>& words) {
  RedisCommand command{.head = fmt::format("*{}\r\n", words.size())};
  for (const std::string& word : words)
    command.head += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return command;
}

RedisConnection::RedisConnection(asio::io_context& context, const RedisUrl& url, asio::ssl::context* tls,
                                 std::chrono::milliseconds patience, std::size_t max_reply_bytes, Events events)
    : url_(url),
      secure_context_(tls),
      patience_(patience),
      events_(std::move(events)),
      resolver_(context),
      socket_(context),
      timer_(context),
      reader_(max_reply_bytes),
      received_(kReadAtOnce) {}

template <class Then>
auto RedisConnection::bound(Then then) {
  return [self = shared_from_this(), then = std::move(then)](auto&&... arguments) {
    if (!self->is_closed_) then(*self, std::forward<decltype(arguments)>(arguments)...);
  };
}

template <class Use>
void RedisConnection::with_stream(Use&& use) {
  if (tls_) {
    use(*tls_);
  } else {
    use(socket_);
  }
}

void RedisConnection::start() {
  note_progress(0);
  watch();
  resolver_.async_resolve(url_.host, url_.port,
                          bound([](RedisConnection& self, const Failure& error, const auto& addresses) {
                            if (!self.failed("its name cannot be looked up", error)) self.connect(addresses);
                          }));
}

void RedisConnection::connect(const Tcp::resolver::results_type& addresses) {
  asio::async_connect(socket_, addresses, bound([](RedisConnection& self, const Failure& error, const auto& /*to*/) {
                        if (self.failed("it does not take connections", error)) return;
                        Failure ignored;
                        self.socket_.set_option(Tcp::no_delay(true), ignored);
                        self.secure();
                      }));
}

void RedisConnection::secure() {
  if (secure_context_ == nullptr) return greet();
  tls_.emplace(socket_, *secure_context_);
  ::SSL_set_tlsext_host_name(tls_->native_handle(), url_.host.c_str());
  tls_->set_verify_callback(asio::ssl::host_name_verification(url_.host));
  tls_->async_handshake(asio::ssl::stream_base::client, bound([](RedisConnection& self, const Failure& error) {
                          if (!self.failed("TLS failed", error)) self.greet();
                        }));
}

// An error in a first reply ends the connection; the answer to PING shows that the store is ready.
void RedisConnection::greet() {
  const auto is_fine = [this](const char* what) {
    return [this, what](const RespReply* reply) {
      if (reply != nullptr && reply->kind == RespReply::Kind::kError) fail(fmt::format("{}: {}", what, reply->text));
    };
  };
  read();
  if (!url_.password.empty()) {
    call(url_.user.empty() ? redis_command({"AUTH", url_.password}) : redis_command({"AUTH", url_.user, url_.password}),
         is_fine("AUTH was refused"));
  }
  if (url_.database != 0) call(redis_command({"SELECT", std::to_string(url_.database)}), is_fine("SELECT was refused"));
  call(redis_command({"PING"}), [this](const RespReply* reply) {
    if (reply == nullptr) return;
    if (reply->kind == RespReply::Kind::kError) return fail("PING was refused: " + reply->text);
    is_up_ = true;
    events_.up();
  });
}

void RedisConnection::call(RedisCommand command, Done done) {
  if (is_closed_) return done(nullptr);
  if (awaiting_.empty()) note_progress(0);
  awaiting_.push_back({std::move(done), Clock::now(), num_moved_bytes_});
  to_write_.push_back(std::move(command));
  if (writing_.empty()) write();
}

void RedisConnection::write() {
  if (to_write_.empty()) return;
  std::vector<asio::const_buffer> buffers;
  while (!to_write_.empty() && writing_.size() < kCommandsAtOnce) {
    writing_.push_back(std::move(to_write_.front()));
    to_write_.pop_front();
    const RedisCommand& command = writing_.back();
    buffers.push_back(asio::buffer(command.head));
    if (command.payload == nullptr) continue;
    buffers.push_back(asio::buffer(*command.payload));
    buffers.push_back(asio::buffer(command.tail));
  }
  const auto keeps_moving = [self = shared_from_this(), before = std::size_t{0}](const Failure& error,
                                                                                 std::size_t done) mutable {
    if (before != done) self->note_progress(done - before);
    before = done;
    return error ? std::size_t{0} : std::size_t{1} << 20;
  };
  with_stream([&](auto& stream) {
    asio::async_write(stream, buffers, keeps_moving,
                      bound([](RedisConnection& self, const Failure& error, std::size_t) {
                        if (self.failed("it cannot be written to", error)) return;
                        self.writing_.clear();
                        self.write();
                      }));
  });
}

void RedisConnection::read() {
  with_stream([&](auto& stream) {
    stream.async_read_some(asio::buffer(received_),
                           bound([](RedisConnection& self, const Failure& error, std::size_t size) {
                             if (self.failed("it closed the connection", error)) return;
                             self.note_progress(size);
                             self.reader_.feed({self.received_.data(), size});
                             self.take_replies();
                             if (!self.is_closed_) self.read();
                           }));
  });
}

void RedisConnection::take_replies() {
  while (!is_closed_) {
    const std::unique_ptr<RespReply> reply = reader_.next();
    if (reply == nullptr) break;
    if (awaiting_.empty()) return fail("it answers what was not asked");
    const Done done = std::move(awaiting_.front().done);
    awaiting_.pop_front();
    done(reply.get());
  }
  if (!is_closed_ && !reader_.why().empty()) fail(reader_.why());
}

void RedisConnection::watch() {
  timer_.expires_after(patience_ / kLooksAtOnce);
  timer_.async_wait(bound([](RedisConnection& self, const Failure& /*error*/) {
    if (self.is_late()) return self.fail(fmt::format("it did not answer within {} ms", self.patience_.count()));
    if (self.is_up_ && self.awaiting_.empty() && Clock::now() - self.moved_at_ >= kIdle)
      self.call(redis_command({"PING"}), [](const RespReply*) {});
    self.watch();
  }));
}

bool RedisConnection::is_late() const {
  const Clock::time_point now = Clock::now();
  if (awaiting_.empty()) return !is_up_ && now - moved_at_ >= patience_;
  if (now - moved_at_ >= patience_) return true;
  const Awaited& oldest = awaiting_.front();
  const auto num_bytes = static_cast<double>(num_moved_bytes_ - oldest.num_moved_bytes_before);
  return now - oldest.asked_at >= patience_ + std::chrono::duration<double>(num_bytes / kSlowestBytesPerSecond);
}

bool RedisConnection::failed(const char* what, const Failure& error) {
  if (error) fail(fmt::format("{}: {}", what, error.message()));
  return static_cast<bool>(error);
}

void RedisConnection::close() {
  if (std::exchange(is_closed_, true)) return;
  Failure ignored;
  resolver_.cancel();
  socket_.close(ignored);
  timer_.cancel();
  // A command's callback may hold the last reference to this connection.
  const auto self = shared_from_this();
  std::deque<Awaited> awaiting;
  awaiting.swap(awaiting_);
  for (const Awaited& awaited : awaiting)
    awaited.done(nullptr);
}

void RedisConnection::fail(const std::string& why) {
  if (is_closed_) return;
  const auto self = shared_from_this();
  close();
  events_.failed(why);
}

}  // namespace quire
