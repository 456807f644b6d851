// Options of a fleet: the Redis or Valkey servers that share KV blocks and the rates of keys, and the endpoints that
// publish changes of the prefix caches. Plain; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

struct RedisServer {
  std::string url{};       // redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
  std::string url_file{};  // a file that holds the URL, read at the start
  std::string ca{};        // a PEM file of the authorities that a rediss server must convince; empty: the system's
  std::chrono::milliseconds patience{500};
  std::chrono::milliseconds first_pause{1'000};  // after a failure; doubled with each that follows
  std::chrono::milliseconds longest_pause{30'000};

  bool is_given() const { return !url.empty() || !url_file.empty(); }
};

struct RedisStoreOptions {
  RedisServer server{};
  std::string prefix = "quire";  // prefix of all keys in the store
  std::int64_t max_bytes_in_flight = std::int64_t{64} << 20;
  std::chrono::milliseconds ttl{0};                // lifetime of a written record; 0: as long as the store keeps it
  std::chrono::milliseconds refusal_pause{5'000};  // pause in writing after the store refused a write
};

// Throws StartupError for a URL or a file that cannot be used.
void check_store_options(const RedisStoreOptions& options);

struct SharedQuotaOptions {
  RedisServer server;            // without a URL each daemon counts for itself
  std::string prefix = "quire";  // prefix of all keys in the store
  std::int64_t replicas = 1;     // number of daemons assumed until the store reports it
  std::chrono::milliseconds heartbeat{5'000};
};

struct CacheEventOptions {
  std::string endpoint{};         // ZeroMQ: "tcp://*:5557" is bound, "tcp://router:5557" connected; empty: none
  std::string replay_endpoint{};  // bound endpoint; empty: missed batches are not sent again
  std::string topic = "kv-events";
  std::int64_t buffer_size = 10'000;  // batches that can be sent again
  std::int64_t max_queued = 10'000;   // batches that wait to be sent; more is lost
};

}  // namespace quire
