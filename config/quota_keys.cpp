#include "config/key_groups.h"
#include "config/key_types.h"

namespace quire {

namespace types = config_types;

std::vector<ConfigKey> quota_keys() {
  ConfigKey url = types::text(
      {"shared_quotas.url",
       "A Redis or Valkey server, redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], that several daemons share the "
       "rates of security.keys through: requests_per_minute and tokens_per_minute then hold for all of them together; "
       "empty: for each daemon"},
      [](Config & c) -> auto& { return c.serve.shared_quotas.server.url; });
  url.is_secret = true;
  return {
      url,
      types::text(
          {"shared_quotas.ca",
           "A PEM file with the authorities that are trusted for a rediss server; empty: the system's"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.server.ca; }),
      types::text(
          {"shared_quotas.prefix", "How the keys of quotas begin in the store: daemons with the same one share them"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.prefix; }),
      types::integer<std::int64_t>(
          {"shared_quotas.replicas",
           "Daemons that there are, until the store has said how many: each holds that part of a rate"},
          [](Config & c) -> auto& { return c.serve.shared_quotas.replicas; }, {1, 1'000'000}),
  };
}

}  // namespace quire
