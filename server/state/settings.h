// Settings: what a reload can change for sessions. It is replaced as a whole. Immutable after construction; any thread.
#pragma once

#include <memory>

#include "server/ops/keys/key_ring.h"
#include "server/state/server_options.h"
#include "server/wire/tls.h"

namespace quire {

struct Settings {
  explicit Settings(const ServerOptions& server_options)
      : options(server_options), keys(server_options.security.keys), tls(open_tls(server_options.tls)) {}

  ServerOptions options;
  KeyRing keys;
  std::shared_ptr<const TlsContext> tls;  // null: plain HTTP
};

}  // namespace quire
