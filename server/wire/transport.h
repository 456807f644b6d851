// Transport: one accepted connection's bytes. It owns the socket and the bytes that arrived and were not consumed yet.
// While a response is made it reads ahead, up to a bound, to notice a client that left. One thread at a time:
// everything happens on the socket's own io thread. Invariants: bytes that wait for a slow client are charged to that
// client; a long write lets other connections of the event loop run.
#pragma once

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/wire/client_budget.h"
#include "server/wire/tls.h"
#include "server/wire/wakeup.h"

namespace quire {

// Operations answer with a tuple of error code and result, and do not throw.
inline constexpr auto kUseTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

enum class ReadStatus { kMore, kClosed, kTimeout, kWoken };

// Budget that a slow reader's answer is charged to, and its slowest rate.
struct ReaderLimits {
  ClientBudget* budget = nullptr;  // null: nothing is charged
  std::string client;
  std::int64_t max_bytes = 0;  // limit for all unread answers together
  std::int64_t min_rate = 0;   // bytes per second of a write once its timeout has passed; 0: any
};

// kOwn: the bytes exist for this write only, and are charged while they wait; kShared: other connections use them too.
enum class Bytes { kOwn, kShared };

class Transport : public std::enable_shared_from_this<Transport> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  // `peer`: the other side's address, for the log. Without `tls` the connection is plain.
  Transport(Socket socket, std::string peer, std::unique_ptr<TlsStream> tls);

  // Bytes that arrived and were not consumed.
  std::string_view input() const { return std::string_view(input_).substr(consumed_); }
  void consume(std::size_t count);

  // To be called first; returns true at once on a plain connection. False: the handshake failed, and the connection is
  // closed.
  boost::asio::awaitable<bool> handshake(std::chrono::milliseconds timeout);

  // Ends a fill() under way, or the next one, with kWoken. Any thread.
  void wake() noexcept;
  // Resets the connection at the read or write under way, or at the next one. Any thread.
  void cut() noexcept;
  // Waits for at least one further byte.
  boost::asio::awaitable<ReadStatus> fill(std::chrono::milliseconds timeout);
  // False once the client is gone, took nothing for `timeout`, or was cut as ReaderLimits say; the connection is then
  // closed.
  boost::asio::awaitable<bool> write(std::string_view data, std::chrono::milliseconds timeout,
                                     Bytes bytes = Bytes::kOwn);
  // Applies to the following writes.
  void limit_reader(ReaderLimits limits) { reader_limits_ = std::move(limits); }
  const std::string& client() const { return reader_limits_.client; }
  // Bytes since the connection began.
  std::uint64_t num_written() const { return num_written_; }
  // Charges bytes waiting behind a write together with it; null: none.
  void charge_also(std::function<std::int64_t()> num_waiting) { num_waiting_ = std::move(num_waiting); }

  // Calls `on_gone` once when the client closes or the connection breaks; unwatch() forgets it.
  void watch(std::function<void()> on_gone);
  void unwatch() { on_gone_ = nullptr; }

  // Ends sending and gives the client a moment to read what was sent, so that a reset does not destroy the last
  // response.
  boost::asio::awaitable<void> close_gracefully();
  void close();
  // Resets the connection and drops what the kernel still holds for the client.
  void reset();

  boost::asio::any_io_executor executor() { return socket_.get_executor(); }
  const std::string& peer() const { return peer_; }

 private:
  IoResult read_some(char* data, std::size_t size);
  IoResult write_some(std::string_view data);
  // Returns false if `timeout` passed first.
  boost::asio::awaitable<bool> wait(Socket::wait_type what, std::chrono::milliseconds timeout);
  // Waits until the client may take more of a write; false: it is too slow, or was cut.
  boost::asio::awaitable<bool> wait_for_reader(Socket::wait_type what, std::chrono::milliseconds timeout,
                                               std::int64_t num_held, std::optional<ClientBudget::Charge>& charge);
  bool charge_reader(std::int64_t num_held, std::optional<ClientBudget::Charge>& charge);
  void start_read(Socket::wait_type what);
  void on_readable(const boost::system::error_code& error);
  void set_gone();

  Socket socket_;
  std::string peer_;
  std::unique_ptr<TlsStream> tls_;  // destroyed before the socket it uses
  Wakeup may_read_;                 // signals fill() that a read has completed
  Wakeup may_write_;                // signals write() that a write has completed
  std::string input_;
  std::size_t consumed_ = 0;
  ReaderLimits reader_limits_;
  std::function<std::int64_t()> num_waiting_;
  std::int64_t num_charged_ = 0;  // bytes charged for the write under way
  bool waiting_ = false;          // wait()'s event has not come yet
  bool reading_ = false;
  bool gone_ = false;
  std::uint64_t num_written_ = 0;
  std::atomic<bool> woken_{false};
  std::atomic<bool> is_cut_{false};
  std::function<void()> on_gone_;
};

}  // namespace quire
