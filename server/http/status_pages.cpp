#include "server/http/status_pages.h"

#include "server/api/json.h"

namespace quire {

namespace {

Response status(int code, const char* word) {
  return Response{code, "application/json", dump_json(Json{{"status", word}})};
}

}  // namespace

Response livez(ServerState&) {
  return status(200, "ok");
}

Response readyz(ServerState& state) {
  const auto service = state.service();
  switch (state.phase.load()) {
    case ServerPhase::kStarting: return status(503, "loading");
    case ServerPhase::kServing: break;
    default: return status(503, "draining");
  }
  if (service && service->healthy && !service->healthy()) return status(503, "device failed");
  return status(200, "ok");
}

Response startupz(ServerState& state) {
  return state.phase.load() == ServerPhase::kStarting ? status(503, "loading") : status(200, "ok");
}

Response metrics_page(ServerState& state) {
  const auto service = state.service();
  std::optional<EngineStats> stats;
  if (service && service->engine_stats) stats = service->engine_stats();
  const std::string model = service && !service->models.all().empty() ? service->models.all().front()->name : "";
  return Response{200, "text/plain; version=0.0.4; charset=utf-8",
                  state.metrics.expose(stats ? &*stats : nullptr, model, state.spans.get())};
}

Response version_page(ServerState&) {
  return Response{200, "application/json", dump_json(Json{{"version", QUIRE_VERSION}})};
}

}  // namespace quire
