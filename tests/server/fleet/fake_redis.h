// FakeRedis: a server that speaks Redis's protocol from a thread of its own, plain or over TLS, and answers each
// command as the test says. reply(): that thread; everything else: any thread. Invariant: its port stays its own while
// it lives, so that a client can come again.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/wire/certificate.h"

namespace quire::test {

class FakeRedis {
 public:
  using Words = std::vector<std::string>;
  // The bytes of the reply, which it is given as it would be; empty: it never answers. kClose: it closes.
  using Behaviour = std::function<std::string(const Words& words, const std::string& reply)>;
  static constexpr const char* kClose = "close";

  explicit FakeRedis(bool secure = false, Behaviour behaviour = {})
      : behaviour_(std::move(behaviour)), acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}) {
    if (secure) {
      tls_.emplace(boost::asio::ssl::context::tls_server);
      tls_->use_certificate_chain_file(certificate().certificate);
      tls_->use_private_key_file(certificate().key, boost::asio::ssl::context::pem);
    }
    boost::asio::co_spawn(context_, accept(), boost::asio::detached);
    thread_ = std::thread([this] { context_.run(); });
  }
  ~FakeRedis() {
    context_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  std::string url(const std::string& user = "", const std::string& path = "") const {
    return (tls_ ? "rediss://" : "redis://") + user + "127.0.0.1:" + std::to_string(port()) + path;
  }
  void behave(Behaviour behaviour) {
    const std::lock_guard lock(mutex_);
    behaviour_ = std::move(behaviour);
  }
  std::map<std::string, std::string> values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  void set_values(std::map<std::string, std::string> values) {
    const std::lock_guard lock(mutex_);
    values_ = std::move(values);
  }
  std::vector<Words> commands() const {
    const std::lock_guard lock(mutex_);
    return commands_;
  }

 private:
  using Tcp = boost::asio::ip::tcp;
  using Stream = boost::asio::ssl::stream<Tcp::socket>;

  boost::asio::awaitable<void> accept() {
    for (;;) {
      Tcp::socket socket = co_await acceptor_.async_accept(boost::asio::use_awaitable);
      if (tls_) {
        boost::asio::co_spawn(context_, serve_tls(std::move(socket)), boost::asio::detached);
      } else {
        boost::asio::co_spawn(context_, serve(std::move(socket)), boost::asio::detached);
      }
    }
  }

  boost::asio::awaitable<void> serve_tls(Tcp::socket socket) {
    Stream stream(std::move(socket), *tls_);
    boost::system::error_code error;
    auto token = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    co_await stream.async_handshake(boost::asio::ssl::stream_base::server, token);
    if (!error) co_await serve(std::move(stream));
  }

  template <class AnyStream>
  boost::asio::awaitable<void> serve(AnyStream stream) {
    std::string buffer;
    std::vector<char> piece(1 << 16);
    boost::system::error_code error;
    auto token = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    for (;;) {
      const std::size_t size = co_await stream.async_read_some(boost::asio::buffer(piece), token);
      if (error) co_return;
      buffer.append(piece.data(), size);
      std::string out;
      bool closes = false;
      for (std::optional<Words> words = next(buffer); words && !closes; words = next(buffer)) {
        const std::string reply = this->reply(*words);
        closes = reply == kClose;
        if (!closes) out += reply;
      }
      co_await boost::asio::async_write(stream, boost::asio::buffer(out), token);
      if (error || closes) co_return;
    }
  }

  // The next whole command, taken off the buffer.
  static std::optional<Words> next(std::string& buffer) {
    std::size_t at = 0;
    const auto number = [&](char kind) -> std::optional<std::size_t> {
      const std::size_t end = buffer.find("\r\n", at);
      if (end == std::string::npos || buffer[at] != kind) return std::nullopt;
      std::size_t value = 0;
      std::from_chars(buffer.data() + at + 1, buffer.data() + end, value);
      at = end + 2;
      return value;
    };
    const auto count = number('*');
    if (!count) return std::nullopt;
    Words words;
    for (std::size_t i = 0; i < *count; ++i) {
      const auto size = number('$');
      if (!size || buffer.size() < at + *size + 2) return std::nullopt;
      words.push_back(buffer.substr(at, *size));
      at += *size + 2;
    }
    buffer.erase(0, at);
    return words;
  }

  std::string reply(const Words& words) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(words);
    const std::string right = right_reply(words);
    return behaviour_ ? behaviour_(words, right) : right;
  }

  std::string right_reply(const Words& words) {
    if (words[0] == "SET") {
      const bool keeps = words.size() > 3 && words[3] == "NX" && values_.contains(words[1]);
      if (!keeps) values_[words[1]] = words[2];
      return keeps ? "$-1\r\n" : "+OK\r\n";
    }
    const auto found = words.size() > 1 ? values_.find(words[1]) : values_.end();
    if (words[0] == "STRLEN") return ":" + std::to_string(found == values_.end() ? 0 : found->second.size()) + "\r\n";
    if (words[0] == "GET") {
      if (found == values_.end()) return "$-1\r\n";
      return "$" + std::to_string(found->second.size()) + "\r\n" + found->second + "\r\n";
    }
    return words[0] == "PING" ? "+PONG\r\n" : "+OK\r\n";
  }

  mutable std::mutex mutex_;
  Behaviour behaviour_;
  std::map<std::string, std::string> values_;
  std::vector<Words> commands_;
  std::optional<boost::asio::ssl::context> tls_;
  boost::asio::io_context context_;
  Tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace quire::test
