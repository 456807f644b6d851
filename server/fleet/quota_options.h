// SharedQuotaOptions: the Redis or Valkey server that shares the rates of keys. Plain; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "server/fleet/redis_options.h"

namespace quire {

struct SharedQuotaOptions {
  RedisServer server;            // without a URL each daemon counts for itself
  std::string prefix = "quire";  // prefix of all keys in the store
  std::int64_t replicas = 1;     // number of daemons assumed until the store reports it
  std::chrono::milliseconds heartbeat{5'000};
};

}  // namespace quire
