// RedisLink: a thread with a connection to a Redis or Valkey server or cluster, restored after each failure. Any thread
// may post(); everything else, and the events, are the link's thread's. Invariants: `up` and `failed` alternate, except
// that each failed attempt is a `failed` of its own; after a failure the link pauses, each time twice as long up to the
// longest pause, until a connection lasted for a while.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/fleet/fleet_options.h"
#include "server/fleet/redis_connection.h"
#include "server/fleet/redis_router.h"

namespace quire {

// Throws StartupError, which begins with the setting's name, for a URL or a file that cannot be used.
void check_redis_server(const RedisServer& server, const char* setting);

// Enough for the replies of Quire's scripts.
constexpr std::size_t kShortReplyBytes = 4096;

// Identifies a daemon among those that share a server: 128 random bits in hexadecimal.
std::string random_daemon_id();

class RedisLink {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    const char* setting;      // begins messages
    const char* thread;       // the thread's name
    const char* use;          // for the log: the use of a working server
    const char* consequence;  // for the log: the effect of a failed one
    std::size_t max_reply_bytes;
    std::string home{};                 // all keys lie on this key's node of a cluster; empty: on any
    std::chrono::milliseconds beat{0};  // between two `beat` events; 0: none
  };
  struct Events {
    std::function<void()> up;
    std::function<void()> failed;
    std::function<void()> beat{};  // called at intervals while the link is up
  };

  // Throws StartupError like check_redis_server(), but not for a server that cannot be reached.
  RedisLink(const RedisServer& server, const Options& options, Events events);
  ~RedisLink();  // no callback runs afterwards
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  bool is_up() const { return is_up_.load(std::memory_order_relaxed); }
  std::string place() const { return url_.place(); }
  // Runs `work` on the thread, or never if memory runs out.
  void post(std::function<void()> work) noexcept;

  // `done` gets null if the node that has the key is not connected, or fails before its reply; if the server fails with
  // that node, `failed` comes after it.
  void call(const std::string& key, RedisCommand command, RedisConnection::Done done);
  // Drops the connection as if it had failed: the server does not do its job. No effect if it is down already.
  void give_up(const std::string& why);

 private:
  void run();
  void connect();
  void note_up();
  void note_failed(const std::string& why);
  void beat();

  const RedisServer server_;
  const Options options_;
  const RedisUrl url_;
  const Events events_;
  std::optional<boost::asio::ssl::context> tls_;
  boost::asio::io_context context_;
  boost::asio::steady_timer again_;  // runs until the next attempt to connect
  boost::asio::steady_timer beat_;
  std::vector<RedisAddress> seeds_;
  std::shared_ptr<RedisRouter> router_;
  std::chrono::milliseconds pause_;
  Clock::time_point up_at_{};
  bool said_down_ = false;
  std::atomic<bool> is_up_{false};
  std::thread thread_;
};

}  // namespace quire
