#include "server/join_fleet.h"

#include <optional>
#include <utility>
#include <vector>

#include "server/fleet/event_publisher.h"
#include "server/fleet/quota_sharer.h"
#include "server/fleet/redis_store.h"
#include "server/fleet/stream_sharer.h"
#include "server/ops/keys/quota.h"
#include "server/ops/shared_streams.h"

namespace quire {

namespace {

class Fleet {
 public:
  Fleet(const ServeOptions& options, ServerState& state) : state_(state) {
    // Batches have quotas of their own, which the store keeps apart too.
    if (options.shared_quotas.server.is_given())
      quotas_.emplace(options.shared_quotas,
                      std::vector<QuotaSharer::Table>{{&state.quotas, ""}, {&state.batch_quotas, "batch:"}},
                      state.shared_quotas);
    if (options.shared_store.server.is_given()) share_streams(options.shared_store);
  }
  ~Fleet() { state_.shared_streams = nullptr; }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

 private:
  void share_streams(const RedisStoreOptions& store) {
    StreamSharer& sharer = streams_.emplace(StreamSharer::Options{.server = store.server, .prefix = store.prefix});
    functions_.lease = sharer.lease();
    functions_.begin = [&sharer](const std::string& name, const StreamOrigin& origin,
                                 std::chrono::milliseconds window) { sharer.begin(name, origin, window); };
    functions_.end = [&sharer](const std::string& name) { sharer.end(name); };
    functions_.take = [&sharer](const std::string& name, std::chrono::milliseconds window,
                                std::function<void(SharedStreams::Taken)> done) {
      sharer.take(name, window, std::move(done));
    };
    state_.shared_streams = &functions_;
  }

  ServerState& state_;
  std::optional<QuotaSharer> quotas_;    // empty: each daemon counts for itself
  std::optional<StreamSharer> streams_;  // empty: a stream is resumed at its own daemon alone
  SharedStreams functions_;
};

}  // namespace

void check_fleet(const ServeOptions& options) {
  check_store_options(options.shared_store);
  check_quota_options(options.shared_quotas);
}

void check_event_endpoints(const CacheEventOptions& options) {
  if (!options.endpoint.empty()) CacheEventPublisher::check(options);
}

BlockSharing share_blocks(const RedisStoreOptions& store, const CacheEventOptions& events) {
  BlockSharing sharing;
  if (store.server.is_given()) {
    sharing.store = [store](std::function<void()> ready) {
      return std::make_unique<RedisStore>(store, std::move(ready));
    };
  }
  if (!events.endpoint.empty()) {
    sharing.events = [publisher = std::make_shared<CacheEventPublisher>(events)](const std::string& topic) {
      return std::make_shared<ModelEvents>(publisher, topic);
    };
  }
  return sharing;
}

std::shared_ptr<CacheEventSink> name_adapters(std::shared_ptr<CacheEventSink> events,
                                              std::shared_ptr<const AdapterPool> adapters) {
  return std::make_shared<NamedAdapterEvents>(std::move(events), std::move(adapters));
}

std::shared_ptr<void> join_fleet(const ServeOptions& options, ServerState& state) {
  return std::make_shared<Fleet>(options, state);
}

}  // namespace quire
