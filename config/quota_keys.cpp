#include "config/key_types.h"
#include "config/keys.h"
#include "config/redis_keys.h"

namespace quire {

namespace types = config_types;

namespace {

RedisServer& quota_server(Config& config) {
  return config.serve.shared_quotas.server;
}

}  // namespace

std::vector<ConfigKey> quota_keys() {
  std::vector<ConfigKey> keys =
      redis_server_keys<quota_server>("shared_quotas",
                                      "daemons share rate limits, so that requests_per_minute and tokens_per_minute "
                                      "of security.keys apply to all of them together");
  const std::vector<ConfigKey> others = {
      types::text(
          {"shared_quotas.prefix", "Prefix of the quota keys in the store; daemons with the same prefix share quotas"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.prefix; }),
      types::integer<std::int64_t>(
          {"shared_quotas.replicas",
           "Number of daemons; until the store reports it, each daemon admits 1/replicas of every rate"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.replicas; }, {1, 1'000'000}),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

}  // namespace quire
