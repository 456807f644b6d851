// RedisServer: a Redis or Valkey server, or any node of a cluster. RedisStoreOptions: settings of the server through
// which several daemons share KV blocks. Plain; any thread.
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

}  // namespace quire
