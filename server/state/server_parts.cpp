#include "server/state/server_parts.h"

#include "server/modules/modules.h"
#include "server/ops/reports/span_exporter.h"

namespace quire {

namespace {

std::shared_ptr<SpanExporter> open_spans([[maybe_unused]] const TracingOptions& options) {
  if constexpr (is_built(Module::kOtlp)) {
    if (!options.endpoint.empty()) return std::make_shared<SpanExporter>(options);
  }
  return nullptr;
}

}  // namespace

ServerParts::ServerParts(const ServerOptions& options)
    : responses(std::make_shared<ResponseStore>(options.responses)),
      socket_responses(std::make_shared<ResponseStore>(
          ResponseStoreOptions{options.max_connections, options.responses.socket_bytes})),
      spans(open_spans(options.tracing)),
      state(*this, std::make_shared<const Settings>(options)) {
  streams.set_max_bytes(options.resume.max_bytes);
}

ServerState::ServerState(ServerParts& parts, std::shared_ptr<const Settings> settings)
    : responses(parts.responses),
      socket_responses(parts.socket_responses),
      background(parts.background),
      spans(parts.spans),
      metrics(parts.metrics),
      bodies(parts.bodies),
      answers(parts.answers),
      live(parts.live),
      sockets(parts.sockets),
      quotas(parts.quotas),
      batch_quotas(parts.batch_quotas),
      shared_quotas(parts.shared_quotas),
      failures(parts.failures),
      streams(parts.streams),
      history(parts.history),
      admin(parts.admin),
      request_trace(parts.request_trace),
      settings_(std::move(settings)) {}

// Ends the saved streams of removed or changed keys; open WebSockets then check their keys again.
void ServerState::set_settings(std::shared_ptr<const Settings> settings) {
  streams.set_max_bytes(settings->options.resume.max_bytes);
  const std::shared_ptr<const Settings> before = this->settings();
  {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
  }
  for (const ApiKey& key : before->keys.all()) {
    const ApiKey* const now = settings->keys.named(key.name);
    if (now == nullptr || now->hash != key.hash) streams.revoke(key.name);
  }
  if (before->keys.empty() && !settings->keys.empty()) streams.revoke("");
  sockets.nudge();
}

}  // namespace quire
