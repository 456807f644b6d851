// Connects a daemon to the fleet that its options name: shared cache blocks, cache events, rates and streams. One
// thread at a time (main). Module: `fleet`.
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

// How a model's engine shares blocks and reports cache events; an empty function: it does not.
struct BlockSharing {
  SharedStoreFactory store;
  std::function<std::shared_ptr<CacheEventSink>(const std::string& topic)> events;  // by the model's topic
};
// Throws StartupError for an endpoint that cannot be used.
BlockSharing share_blocks(const RedisStoreOptions& store, const CacheEventOptions& events);
// A sink whose events give adapters by their names instead of their numbers.
std::shared_ptr<CacheEventSink> name_adapters(std::shared_ptr<CacheEventSink> events,
                                              std::shared_ptr<const AdapterPool> adapters);

// Shares the rates of keys and the origins of streams until the result is destroyed, before `state` is.
std::shared_ptr<void> join_fleet(const ServeOptions& options, ServerState& state);

}  // namespace quire
