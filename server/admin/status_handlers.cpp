#include "server/admin/handlers.h"

#include <algorithm>

#include "server/api/common/json.h"
#include "server/api/common/model_table.h"
#include "server/metrics/metrics.h"
#include "server/models/running_model.h"
#include "server/ops/reports/span_exporter.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

namespace {

Response status(int code, const char* word) {
  return Response{code, "application/json", dump_json(Json{{"status", word}})};
}

}  // namespace

namespace {

// A failed device does not recover, so its state is unknown.
bool device_failed(const ModelTable& table) {
  const auto& models = table.entries();
  return std::any_of(models.begin(), models.end(),
                     [](const TableEntry& model) { return model.running && !model.running->healthy(); });
}

bool all_failed(const ModelTable& table) {
  const auto& models = table.entries();
  const auto is_served = [](const TableEntry& model) { return model.state != ModelState::kUnloaded; };
  return std::any_of(models.begin(), models.end(), is_served) &&
         std::all_of(models.begin(), models.end(),
                     [&](const TableEntry& model) { return !is_served(model) || model.state == ModelState::kFailed; });
}

}  // namespace

Response livez(ServerState& state) {
  const auto table = state.models();
  return table && device_failed(*table) ? status(503, "device failed") : status(200, "ok");
}

Response readyz(ServerState& state) {
  const auto table = state.models();
  switch (state.phase.load()) {
    case ServerPhase::kStarting: return status(503, "loading");
    case ServerPhase::kServing: break;
    default: return status(503, "draining");
  }
  if (device_failed(*table)) return status(503, "device failed");
  if (all_failed(*table)) return status(503, "no model could be loaded");
  return status(200, "ok");
}

Response startupz(ServerState& state) {
  return state.phase.load() == ServerPhase::kStarting ? status(503, "loading") : status(200, "ok");
}

Response metrics_response(ServerState& state, const ReportReader& reader) {
  const auto table = state.models();
  std::vector<ModelStats> stats;
  if (table) {
    for (const TableEntry& model : table->entries()) {
      if (model.running) stats.push_back({model.name, model.running->stats()});
    }
  }
  const std::string model = table && !table->entries().empty() ? table->entries().front().name : "";
  return Response{200, "text/plain; version=0.0.4; charset=utf-8",
                  state.metrics.expose(stats, model, reader.sees_keys, state_families(state), state.spans.get())};
}

Response version_response(ServerState&) {
  return Response{200, "application/json", dump_json(Json{{"version", QUIRE_VERSION}})};
}

}  // namespace quire
