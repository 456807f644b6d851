// SharedQuotaOptions: which Redis or Valkey server the rates of keys are shared through. Plain; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "server/fleet/redis_options.h"

namespace quire {

struct SharedQuotaOptions {
  RedisServer server;            // where none is given each daemon counts for itself
  std::string prefix = "quire";  // of all keys
  std::int64_t replicas = 1;     // that there are, until the store has said how many
  std::chrono::milliseconds heartbeat{5'000};
};

}  // namespace quire
