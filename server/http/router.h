// Router: which path answers which methods, and how. Immutable; any thread.
#pragma once

#include <memory>
#include <string_view>

#include "server/api/model_table.h"
#include "server/api/operation.h"
#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

using Endpoint = Result<std::unique_ptr<Operation>> (*)(const ModelTable& models, const Call& call);
// Answers about the server itself, from its state alone, whatever the phase.
using StateHandler = Response (*)(ServerState& state);

// Tells the server to do something; on a text thread.
using AdminHandler = Result<AdminTask> (*)(ServerState& state, const Call& call);

// Who may ask. kKey: holders of an API key, where there are keys at all. kMetrics: as security.metrics says.
enum class Access { kOpen, kKey, kMetrics, kAdmin };

struct Route {
  std::string_view path;    // a trailing '*' stands for any non-empty rest
  std::string_view method;  // GET implies HEAD
  Endpoint endpoint = nullptr;
  StateHandler handler = nullptr;
  Access access = Access::kKey;
  AdminHandler admin = nullptr;
};

struct RouteMatch {
  const Route* route = nullptr;  // null: see status
  int status = 200;              // 404 or 405
  std::string allow;             // with 405, and for OPTIONS
};

RouteMatch find_route(std::string_view method, std::string_view path);

}  // namespace quire
