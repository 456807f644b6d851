// The configuration keys of one Redis or Valkey server. Any thread.
#pragma once

#include <string>
#include <vector>

#include "config/key_types.h"

namespace quire {

// section: the keys' section; use: completes "A Redis or Valkey server, or any node of a cluster, through which ".
template <RedisServer& (*kServer)(Config&)>
std::vector<ConfigKey> redis_server_keys(const std::string& section, const std::string& use) {
  ConfigKey url = config_types::text(
      {section + ".url", "A Redis or Valkey server, or any node of a cluster, through which " + use +
                             ": redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]; "
                             "empty: none"},
      [](Config & c) -> auto& { return kServer(c).url; });
  url.is_secret = true;
  return {url,
          config_types::text(
              {section + ".url_file",
               "A file with the URL, instead of " + section + ".url, such as a Kubernetes secret; read at the start"},
              [](Config & c) -> auto& { return kServer(c).url_file; }),
          config_types::text(
              {section + ".ca",
               "A PEM file with the CA certificates that are trusted for a rediss server; empty: the system's"},
              [](Config & c) -> auto& { return kServer(c).ca; })};
}

}  // namespace quire
