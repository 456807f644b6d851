// RedisConnection: a connection to a Redis or Valkey server: resolves its name, connects, secures and authenticates;
// then takes commands, whose replies come in order. One thread at a time: its context's. Invariants: `up` is called at
// most once, `failed` exactly once unless close() comes first, and nothing is called after either; each command's
// `done` is called once, with null if the connection failed before its reply. The connection fails if no byte moves for
// `patience` before it is up or while a reply is due, or if a reply takes longer than its bytes explain. After a second
// without a command it is pinged.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kv/tiers/tier_record.h"
#include "server/fleet/redis_url.h"
#include "server/fleet/resp_reader.h"

namespace quire {

// A command in protocol form: `head`, then `payload` unless it is empty, then `tail`.
struct RedisCommand {
  std::string head;
  BlockPayload payload{};
  std::string tail{};
};

// A command of these words.
RedisCommand redis_command(const std::vector<std::string>& words);

class RedisConnection : public std::enable_shared_from_this<RedisConnection> {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(const RespReply*)>;
  struct Events {
    std::function<void()> up;
    std::function<void(const std::string& why)> failed;
  };

  // tls: null for a plain connection; it must outlive this one.
  RedisConnection(boost::asio::io_context& context, const RedisUrl& url, boost::asio::ssl::context* tls,
                  std::chrono::milliseconds patience, std::size_t max_reply_bytes, Events events);
  void start();
  void close();
  void call(RedisCommand command, Done done);

 private:
  using Tcp = boost::asio::ip::tcp;
  using Failure = boost::system::error_code;
  struct Awaited {
    Done done;
    Clock::time_point asked_at;
    std::size_t num_moved_bytes_before;
  };

  void connect(const Tcp::resolver::results_type& addresses);
  void secure();
  void greet();
  void read();
  void take_replies();
  void write();
  void watch();
  bool is_late() const;
  void note_progress(std::size_t num_bytes) {
    moved_at_ = Clock::now();
    num_moved_bytes_ += num_bytes;
  }
  void fail(const std::string& why);
  bool failed(const char* what, const Failure& error);
  // Calls then(self, arguments...) unless the connection is closed by then.
  template <class Then>
  auto bound(Then then);
  template <class Use>
  void with_stream(Use&& use);

  const RedisUrl url_;
  boost::asio::ssl::context* const secure_context_;
  const std::chrono::milliseconds patience_;
  Events events_;
  Tcp::resolver resolver_;
  Tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<Tcp::socket&>> tls_;
  boost::asio::steady_timer timer_;
  RespReader reader_;
  std::vector<char> received_;
  std::deque<RedisCommand> to_write_;
  std::deque<RedisCommand> writing_;
  std::deque<Awaited> awaiting_;
  Clock::time_point moved_at_ = Clock::now();
  std::size_t num_moved_bytes_ = 0;  // sent and received
  bool is_up_ = false;
  bool is_closed_ = false;
};

}  // namespace quire
