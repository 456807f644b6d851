#include "server/admin/handlers.h"

#include <fmt/format.h>

#include <charconv>

#include "core/engine/figures/step_trace.h"
#include "server/api/common/errors.h"
#include "server/api/common/json.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/models/running_model.h"
#include "server/ops/keys/admin.h"
#include "server/ops/reports/engine_trace.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"

namespace quire {

namespace {

constexpr int kLongestTrace = 60;  // seconds

// A model to trace; a weak pointer, so that unloading it during the trace frees its memory.
struct ReadyEngine {
  std::string model;
  std::weak_ptr<RunningModel> running;
};

std::vector<ReadyEngine> ready_engines(const ServerState& state) {
  std::vector<ReadyEngine> engines;
  const auto table = state.models();
  if (!table) return engines;
  for (const TableEntry& entry : table->entries()) {
    if (entry.running && entry.running->step_trace() != nullptr) engines.push_back({entry.name, entry.running});
  }
  return engines;
}

}  // namespace

Result<AdminTask> admin_reload(ServerState& state, const Call&) {
  if (!state.admin.reload) return tl::make_unexpected(still_starting());
  const auto outcome = std::make_shared<std::string>();
  const auto until = [&state, outcome](std::function<void(std::optional<Error>)> done) {
    state.admin.reload([outcome, done = std::move(done)](Result<std::string> result) {
      if (!result) return done(std::move(result.error()));
      *outcome = *std::move(result);
      done(std::nullopt);
    });
  };
  return AdminTask{.until = until, .finish = [outcome]() -> Result<std::string> { return *outcome; }};
}

Result<AdminTask> admin_trace(ServerState& state, const Call& call) {
  constexpr std::string_view kName = "seconds=";
  const std::string_view query = call.query;
  int seconds = 0;
  const std::string_view digits = query.substr(query.starts_with(kName) ? kName.size() : query.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  if (error != std::errc() || end != digits.data() + digits.size() || seconds < 1 || seconds > kLongestTrace) {
    return invalid("'seconds' must be an integer from 1 to " + std::to_string(kLongestTrace), "seconds");
  }
  const std::vector<ReadyEngine> engines = ready_engines(state);
  if (engines.empty()) return failure(ErrorKind::kUnavailable, "No model is ready to be traced", "model_loading");
  if (!state.request_trace.start()) {
    return failure(ErrorKind::kRateLimited, "The engines are being traced already", "trace_running");
  }
  for (const ReadyEngine& engine : engines) {
    if (const auto running = engine.running.lock()) running->step_trace()->start(kMostTracedSteps);
  }
  const auto finish = [&state, engines, began = Clock::now()]() -> Result<std::string> {
    std::vector<EngineSteps> steps;
    for (const ReadyEngine& engine : engines) {
      if (const auto running = engine.running.lock()) steps.push_back({engine.model, running->step_trace()->stop()});
    }
    return perfetto_json(steps, state.request_trace.stop(), began);
  };
  return AdminTask{.wait = std::chrono::seconds(seconds), .finish = finish};
}

Result<AdminTask> admin_cache(ServerState& state, const Call&) {
  const auto table = state.models();
  if (!table) return tl::make_unexpected(still_starting());
  Json list = Json::array();
  for (const TableEntry& entry : table->entries()) {
    if (!entry.running) continue;
    const EngineStats stats = entry.running->stats();
    list.push_back({{"model", entry.name},
                    {"block_size", entry.running->cache_config().block_size},
                    {"blocks", stats.num_blocks_named},
                    {"digest", fmt::format("{:016x}", stats.names_digest)}});
  }
  std::string body = dump_json({{"object", "list"}, {"data", std::move(list)}});
  return AdminTask{.finish = [body = std::move(body)]() -> Result<std::string> { return body; }};
}

}  // namespace quire
