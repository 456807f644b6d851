// The gate: the checks on a request's head, before its body is read: the path exists, no page of another site sent it,
// unless that site is allowed, the server is serving, the API key is valid and within its quota. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/admin/handlers.h"
#include "server/ops/keys/key_ring.h"
#include "server/ops/keys/quota.h"
#include "server/router.h"
#include "server/state/server_state.h"
#include "server/wire/request_head.h"
#include "server/wire/response.h"

namespace quire {

struct Settings;

struct Admission {
  const Route* route = nullptr;
  const ApiKey* key = nullptr;      // points into the settings; null where no keys are configured
  std::optional<Response> refusal;  // to be sent instead of an answer
  ReportReader reader;              // rights to read reports about the server
  std::vector<HeaderField> fields;  // for every response to this request
  QuotaTable::Lease lease;
};

struct Arrival {
  bool on_admin = false;  // arrived on the admin listener, which needs no key and serves no model
  bool is_local = false;  // arrived on a Unix socket, which no web page can use
  std::string peer = {};  // the client's address
  bool resumes = false;   // asks for the rest of a stream, whose first request was counted
};

Admission pass_gate(ServerState& state, const Settings& settings, const RequestHead& head, const Arrival& arrival);

}  // namespace quire
