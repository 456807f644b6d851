// CacheEventOptions: the endpoints that publish changes of the prefix caches. Plain; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

struct CacheEventOptions {
  std::string endpoint{};         // of ZeroMQ: "tcp://*:5557" is bound, "tcp://router:5557" connected; empty: none
  std::string replay_endpoint{};  // bound endpoint; empty: missed batches are not sent again
  std::string topic = "kv-events";
  std::int64_t buffer_size = 10'000;  // batches that can be sent again
  std::int64_t max_queued = 10'000;   // batches that wait to be sent; more is lost
};

}  // namespace quire
