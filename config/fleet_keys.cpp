#include "config/key_types.h"
#include "config/keys.h"
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
                                      "daemons share KV blocks if their version, model, draft model, use of mtp, "
                                      "instruction set, kv_cache.dtype, block size and scheduler.max_model_len match");
  const std::vector<ConfigKey> others = {
      types::text(
          {"kv_cache.shared.prefix", "Prefix of all keys in the shared store"},
          [](Config & c) -> auto& { return c.serve.shared_store.prefix; }),
      types::size(
          {"kv_cache.shared.max_bytes_in_flight",
           "Bytes that may wait to be written to the shared store; further blocks stay in the KV pool and are not "
           "shared if they are evicted first"},
          [](Config & c) -> auto& { return c.serve.shared_store.max_bytes_in_flight; }, {1, std::int64_t{1} << 32}),
      types::duration(
          {"kv_cache.shared.ttl",
           "How long a block stays in the shared store after it was written, in whole seconds; 0s: until the store's "
           "own policy removes it"},
          [](Config & c) -> auto& { return c.serve.shared_store.ttl; }),
      types::text(
          {"kv_cache.events.endpoint",
           "ZeroMQ endpoint that publishes prefix cache events for routers, in vLLM's format (MessagePack): "
           "tcp://*:PORT is bound, tcp://HOST:PORT connected; empty: none. The events contain the prompts' tokens"},
          [](Config & c) -> auto& { return c.serve.cache_events.endpoint; }),
      types::text(
          {"kv_cache.events.replay_endpoint",
           "Endpoint where subscribers request missed events, tcp://*:PORT; empty: none"},
          [](Config & c) -> auto& { return c.serve.cache_events.replay_endpoint; }),
      types::text(
          {"kv_cache.events.topic", "The topic of the events; {model} stands for the model's name"},
          [](Config & c) -> auto& { return c.serve.cache_events.topic; }),
      types::integer<std::int64_t>(
          {"kv_cache.events.buffer_size", "Event batches kept for replay; each step that changes the cache makes one"},
          [](Config & c) -> auto& { return c.serve.cache_events.buffer_size; }, {0, 1'000'000}),
      types::integer<std::int64_t>(
          {"kv_cache.events.max_queued", "Batches that may wait to be sent; further ones are dropped and counted"},
          [](Config & c) -> auto& { return c.serve.cache_events.max_queued; }, {1, 1'000'000}),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

}  // namespace quire
