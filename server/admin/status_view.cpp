#include "server/admin/handlers.h"

#include <chrono>
#include <cmath>
#include <map>

#include "server/api/common/json.h"
#include "server/api/common/model_table.h"
#include "server/metrics/metrics.h"
#include "server/models/running_model.h"
#include "server/ops/reports/status_history.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Three decimal places; null if nothing was measured.
Json number(double value) {
  if (std::isnan(value)) return nullptr;
  return std::round(value * 1000.0) / 1000.0;
}

template <class Get>
Json series(const std::vector<StatusPoint>& points, const Get& get) {
  Json values = Json::array();
  for (const StatusPoint& point : points)
    values.push_back(number(get(point)));
  return values;
}

Json history_json(const std::vector<StatusPoint>& points) {
  Json json{{"time", series(points, [](const auto& point) { return point.time; })},
            {"running", series(points, [](const auto& point) { return point.num_running; })},
            {"waiting", series(points, [](const auto& point) { return point.num_waiting; })},
            {"blocks_used", series(points, [](const auto& point) { return point.blocks_used; })},
            {"blocks_cached", series(points, [](const auto& point) { return point.blocks_cached; })},
            {"prompt_tokens_s", series(points, [](const auto& point) { return point.prompt_tokens_s; })},
            {"output_tokens_s", series(points, [](const auto& point) { return point.output_tokens_s; })},
            {"hit_percent", series(points, [](const auto& point) { return 100.0 * point.hit_rate; })},
            {"busy_percent", series(points, [](const auto& point) { return 100.0 * point.busy; })}};
  for (std::size_t i = 0; i < kStatusQuantiles.size(); ++i) {
    const std::string name = "p" + std::to_string(std::lround(100.0 * kStatusQuantiles[i]));
    json["first_token_ms"][name] = series(points, [i](const auto& point) { return 1000.0 * point.first_token_s[i]; });
    json["between_tokens_ms"][name] =
        series(points, [i](const auto& point) { return 1000.0 * point.between_tokens_s[i]; });
  }
  return json;
}

// Times of phases in the order of "phases".
Json steps_json(const std::vector<StepSummary>& steps, Clock::time_point now) {
  Json list = Json::array();
  for (const StepSummary& step : steps) {
    Json phases = Json::array();
    for (const float seconds : step.phase_seconds)
      phases.push_back(number(1000.0 * seconds));
    list.push_back({{"age_s", number(std::chrono::duration<double>(now - step.ended).count())},
                    {"ms", number(1000.0 * step.seconds)},
                    {"prompt_tokens", step.num_prompt_tokens},
                    {"decode_tokens", step.num_decode_tokens},
                    {"sequences", step.num_sequences},
                    {"phases_ms", std::move(phases)}});
  }
  return list;
}

Json sequences_json(const std::vector<SequenceView>& sequences, const ReportReader& reader) {
  Json list = Json::array();
  for (const SequenceView& sequence : sequences) {
    const bool sees_id = reader.sees_id_of(sequence.key_name);
    list.push_back({{"id", sees_id ? sequence.request_id : std::to_string(list.size() + 1)},
                    {"choice", sequence.choice},
                    {"state", sequence.is_running ? "running" : "waiting"},
                    {"tokens", sequence.num_tokens},
                    {"computed", sequence.num_computed},
                    {"prompt_tokens", sequence.num_prompt_tokens},
                    {"blocks", sequence.num_blocks},
                    {"shared_blocks", sequence.num_shared_blocks}});
    if (reader.sees_keys) list.back()["key"] = sequence.key_name;
  }
  return list;
}

Json queues_json(const std::vector<SequenceView>& sequences) {
  struct Counts {
    int num_running = 0;
    int num_waiting = 0;
  };
  std::map<std::string, Counts> keys;
  for (const SequenceView& sequence : sequences)
    ++(sequence.is_running ? keys[sequence.key_name].num_running : keys[sequence.key_name].num_waiting);
  Json list = Json::array();
  for (const auto& [key, counts] : keys)
    list.push_back({{"key", key}, {"running", counts.num_running}, {"waiting", counts.num_waiting}});
  return list;
}

Json tiers_json(const EngineStats& stats) {
  Json list = Json::array();
  if (stats.host_tier_bytes > 0)
    list.push_back({{"name", "host"}, {"bytes", stats.host_tier_bytes}, {"used", stats.host_tier_bytes_used}});
  if (stats.disk_tier_bytes > 0)
    list.push_back({{"name", "disk"}, {"bytes", stats.disk_tier_bytes}, {"used", stats.disk_tier_bytes_used}});
  return list;
}

Json model_status(const ServerState& state, const TableEntry& entry, const ReportReader& reader,
                  Clock::time_point now) {
  Json json{{"name", entry.name}, {"state", model_state_name(entry.state)}};
  if (!entry.running) return json;
  const EngineStats stats = entry.running->stats();
  const EngineView::Reading view = entry.running->view();
  const CacheConfig cache = entry.running->cache_config();
  if (stats.has_shared_store != 0) {
    json["shared_store"] = {{"up", stats.shared_store.is_up != 0},
                            {"blocks_read", stats.shared_store.num_read},
                            {"blocks_written", stats.shared_store.num_written}};
  }
  json["running"] = stats.num_running;
  json["waiting"] = stats.num_waiting;
  json["pool"] = {{"block_size", cache.block_size},
                  {"dtype", cache.dtype},
                  {"blocks", stats.num_blocks},
                  {"used", stats.num_blocks_used},
                  {"shared", view.num_shared_blocks},
                  {"cached", stats.num_blocks_cached},
                  {"used_peak", stats.num_blocks_used_peak},
                  {"restored", stats.num_blocks_restored}};
  if (stats.num_parts > 0) {
    json["pool"]["window"] = {{"parts", stats.num_parts},
                              {"used", stats.num_parts_used},
                              {"cached", stats.num_parts_cached},
                              {"used_peak", stats.num_parts_used_peak}};
  }
  json["tiers"] = tiers_json(stats);
  json["preemptions"] = stats.num_preemptions;
  if (entry.served != nullptr && entry.served->sight != nullptr)
    json["images"] = {{"encoded", stats.num_media_encoded},
                      {"found", stats.num_media_found},
                      {"encoder_seconds", static_cast<double>(stats.encoder_ns) * 1e-9}};
  json["sequences"] = sequences_json(view.sequences, reader);
  if (reader.sees_keys) json["keys"] = queues_json(view.sequences);
  json["steps"] = steps_json(view.steps, now);
  json["history"] = history_json(state.history.points(entry.name));
  return json;
}

}  // namespace

void sample_status(ServerState& state) {
  const auto table = state.models();
  if (!table) return;
  std::vector<StatusHistory::Sample> samples;
  for (const TableEntry& entry : table->entries()) {
    if (!entry.running) continue;
    samples.push_back({entry.name, entry.running->stats(), state.metrics.first_token_counts(entry.name),
                       state.metrics.gap_counts(entry.name)});
  }
  state.history.add(unix_seconds(), std::move(samples));
}

Response status_view(ServerState& state, const ReportReader& reader) {
  Json body{{"time", unix_seconds()},
            {"version", QUIRE_VERSION},
            {"resident_bytes", resident_bytes()},
            {"phases", Json::array()},
            {"models", Json::array()}};
  for (const char* const name : kStepPhaseNames)
    body["phases"].push_back(name);
  const Clock::time_point now = Clock::now();
  if (const auto table = state.models()) {
    for (const TableEntry& entry : table->entries()) {
      if (entry.state != ModelState::kUnloaded) body["models"].push_back(model_status(state, entry, reader, now));
    }
  }
  Response response{200, "application/json", dump_json(body)};
  response.fields = {{"Cache-Control", "no-store"}};
  return response;
}

}  // namespace quire
