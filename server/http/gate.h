// The gate: what is decided about a request from its head alone, before a byte of its body is read: does the path
// exist, does another site's page may ask for it, is the server serving, whose key is it and has that key used up its
// share. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/request_head.h"
#include "server/http/response.h"
#include "server/http/router.h"
#include "server/http/server_state.h"

namespace quire {

struct Admission {
  const Route* route = nullptr;
  const ApiKey* key = nullptr;      // lives in the settings; null where no key is asked for
  std::optional<Response> refusal;  // to be sent instead of an answer
  bool sees_keys = false;           // may be shown the names of keys
  std::vector<HeaderField> fields;  // for every response to this request
  QuotaTable::Lease lease;
};

struct Arrival {
  bool on_admin = false;  // by the admin listener, which needs no key and serves no model
  bool is_local = false;  // by a Unix socket, which no web page reaches
  std::string peer = {};  // the other side's address
  bool resumes = false;   // for the rest of a stream, which was let in, and is counted, as the stream that it is of
};

Admission pass_gate(ServerState& state, const Settings& settings, const RequestHead& head, const Arrival& arrival);

}  // namespace quire
