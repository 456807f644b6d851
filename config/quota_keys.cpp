#include "config/key_groups.h"
#include "config/key_types.h"
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
                                      "several daemons share the rates of security.keys through: requests_per_minute "
                                      "and tokens_per_minute then hold for "
                                      "all of them together");
  const std::vector<ConfigKey> others = {
      types::text(
          {"shared_quotas.prefix", "How the keys of quotas begin in the store: daemons with the same one share them"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.prefix; }),
      types::integer<std::int64_t>(
          {"shared_quotas.replicas",
           "Daemons that there are, until the store has said how many: each holds that part of a rate"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.replicas; }, {1, 1'000'000}),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

}  // namespace quire
