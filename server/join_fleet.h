// The module `fleet`: what a daemon shares with others, as its options name it. One thread at a time (main).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/engine/adapter_pool.h"
#include "core/engine/engine.h"
#include "server/serve.h"
#include "server/state/server_state.h"

namespace quire {

// Throws StartupError for options that are wrong on any machine.
void check_fleet(const ServeOptions& options);
// Throws StartupError for an endpoint of events that cannot be used on this machine.
void check_event_endpoints(const CacheEventOptions& options);

// How a model's engine shares its blocks; empty functions: not at all.
struct BlockSharing {
  SharedStoreFactory store;
  std::function<std::shared_ptr<CacheEventSink>(const std::string& topic)> events;  // by the model's topic
};
// Throws StartupError for an endpoint that cannot be used.
BlockSharing share_blocks(const RedisStoreOptions& store, const CacheEventOptions& events);
// The sink with adapters by name.
std::shared_ptr<CacheEventSink> name_adapters(std::shared_ptr<CacheEventSink> events,
                                              std::shared_ptr<const AdapterPool> adapters);

// Shares the rates of keys and the origins of streams until the result is destroyed, before `state` is.
std::shared_ptr<void> join_fleet(const ServeOptions& options, ServerState& state);

}  // namespace quire
