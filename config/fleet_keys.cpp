#include "config/key_groups.h"
#include "config/key_types.h"
#include "config/redis_keys.h"

namespace quire {

namespace types = config_types;

namespace {

RedisServer& store_server(Config& config) {
  return config.serve.shared_store.server;
}

}  // namespace

std::vector<ConfigKey> fleet_keys() {
  std::vector<ConfigKey> keys =
      redis_server_keys<store_server>("kv_cache.shared",
                                      "several daemons share KV blocks through, where version, model, instruction set, "
                                      "kv_cache.dtype and block size are "
                                      "the same");
  const std::vector<ConfigKey> others = {
      types::text(
          {"kv_cache.shared.prefix", "How the keys of KV blocks begin in the shared store"},
          [](Config & c) -> auto& { return c.serve.shared_store.prefix; }),
      types::size({"kv_cache.shared.max_bytes_in_flight",
                   "The most bytes that wait to be written to the shared store; blocks beyond are not shared"},
                  [](Config & c) -> auto& { return c.serve.shared_store.max_bytes_in_flight; },
                  {1, std::int64_t{1} << 32}),
      types::duration(
          {"kv_cache.shared.ttl",
           "How long a block stays in the shared store after it was written, in whole seconds; 0s: until the store's "
           "own "
           "policy removes it"},
          [](Config & c) -> auto& { return c.serve.shared_store.ttl; }),
      types::text(
          {"kv_cache.events.endpoint",
           "Where what changes in the prefix cache is published for routers, as vLLM does (ZeroMQ, MessagePack): "
           "tcp://*:PORT is bound, tcp://HOST:PORT connected; empty: nowhere. The events hold the prompts' tokens"},
          [](Config & c) -> auto& { return c.serve.cache_events.endpoint; }),
      types::text(
          {"kv_cache.events.replay_endpoint",
           "Where subscribers ask for events that they missed, tcp://*:PORT; empty: nowhere"},
          [](Config & c) -> auto& { return c.serve.cache_events.replay_endpoint; }),
      types::text(
          {"kv_cache.events.topic", "The topic of the events; {model} stands for the model's name"},
          [](Config & c) -> auto& { return c.serve.cache_events.topic; }),
      types::integer<std::int64_t>({"kv_cache.events.buffer_size",
                                    "Batches of events, one for each step that changed something, that are sent again"},
                                   [](Config & c) -> auto& { return c.serve.cache_events.buffer_size; },
                                   {0, 1'000'000}),
      types::integer<std::int64_t>(
          {"kv_cache.events.max_queued", "Batches that may wait to be sent; further ones are lost, and counted"},
          [](Config & c) -> auto& { return c.serve.cache_events.max_queued; }, {1, 1'000'000}),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

}  // namespace quire
