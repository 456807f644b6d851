// ServerParts: owns the parts that the sessions of one server share, and the ServerState that refers to them. Threads:
// as the parts say.
#pragma once

#include <memory>

#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/metrics/metrics.h"
#include "server/ops/keys/admin.h"
#include "server/ops/keys/failure_limiter.h"
#include "server/ops/keys/quota.h"
#include "server/ops/reports/engine_trace.h"
#include "server/ops/reports/status_history.h"
#include "server/ops/stream_store.h"
#include "server/state/live_operations.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"
#include "server/wire/client_budget.h"

namespace quire {

struct ServerParts {
  explicit ServerParts(const ServerOptions& options);
  ServerParts(const ServerParts&) = delete;
  ServerParts& operator=(const ServerParts&) = delete;

  const std::shared_ptr<ResponseStore> responses;
  const std::shared_ptr<ResponseStore> socket_responses;
  const std::shared_ptr<BackgroundResponses> background = std::make_shared<BackgroundResponses>();
  const std::shared_ptr<SpanExporter> spans;
  Metrics metrics;
  ClientBudget bodies;
  ClientBudget answers;
  LiveOperations live;
  LiveOperations sockets;
  QuotaTable quotas;
  QuotaTable batch_quotas;
  SharedQuotaCounts shared_quotas;
  FailureLimiter failures;
  StreamStore streams;
  StatusHistory history;
  AdminActions admin;
  RequestTrace request_trace;
  ServerState state;  // destroyed before the parts
};

}  // namespace quire
