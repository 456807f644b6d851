#include "server/http/status_pages.h"

#include "server/api/json.h"
#include "server/models/running_model.h"

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
  for (const TableEntry& model : service->models.entries()) {
    if (model.running && !model.running->healthy()) return status(503, "device failed");
  }
  return status(200, "ok");
}

Response startupz(ServerState& state) {
  return state.phase.load() == ServerPhase::kStarting ? status(503, "loading") : status(200, "ok");
}

Response metrics_page(ServerState& state) {
  const auto service = state.service();
  std::vector<ModelStats> stats;
  if (service) {
    for (const TableEntry& model : service->models.entries()) {
      if (model.running) stats.push_back({model.name, model.running->stats()});
    }
  }
  const std::string model = service && !service->models.entries().empty() ? service->models.entries().front().name : "";
  return Response{200, "text/plain; version=0.0.4; charset=utf-8",
                  state.metrics.expose(stats, model, state.spans.get())};
}

Response version_page(ServerState&) {
  return Response{200, "application/json", dump_json(Json{{"version", QUIRE_VERSION}})};
}

}  // namespace quire
