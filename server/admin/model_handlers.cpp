#include "server/admin/model_handlers.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "server/admin/handlers.h"
#include "server/api/common/errors.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/api/fields/admin.h"
#include "server/hub/environment.h"
#include "server/hub/hub_cache.h"
#include "server/models/running_model.h"
#include "server/modules/modules.h"
#include "server/ops/keys/admin.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"

namespace quire {

namespace {

using What = ModelOrder::What;

const char* verb(What what) {
  switch (what) {
    case What::kLoad: return "load";
    case What::kUnload: return "unload";
    case What::kSleep: return "put to sleep";
    case What::kWake: return "wake";
    case What::kReplace: return "replace";
  }
  return "";
}

Json adapters_json(const ModelReport& report) {
  AdapterPool* const pool = report.entry.running ? report.entry.running->adapters() : nullptr;
  const std::vector<std::string> in_memory = pool != nullptr ? pool->stats().in_memory : std::vector<std::string>();
  Json list = Json::array();
  for (const AdapterPath& adapter : report.adapters) {
    list.push_back({{"name", adapter.name},
                    {"path", printable(adapter.path.string())},
                    {"in_memory", std::ranges::find(in_memory, adapter.name) != in_memory.end()}});
  }
  return list;
}

Json report_json(const ModelReport& report) {
  Json json{{"name", report.entry.name},
            {"aliases", report.entry.aliases},
            {"state", model_state_name(report.entry.state)},
            {"path", printable(report.path.string())},
            {"memory_bytes", report.memory},
            {"sleep_after", std::chrono::duration<double>(report.sleep_after).count()},
            {"replacing", report.replacing}};
  if (!report.adapters.empty()) json["adapters"] = adapters_json(report);
  if (!report.entry.failure.empty()) json["failure"] = report.entry.failure;
  if (report.entry.canary_share > 0.0) json["canary_share"] = report.entry.canary_share;
  if (report.entry.max_model_len > 0) json["max_model_len"] = report.entry.max_model_len;
  if (!report.entry.running) return json;
  const EngineStats stats = report.entry.running->stats();
  json["num_running"] = stats.num_running;
  json["num_waiting"] = stats.num_waiting;
  json["kv_blocks"] = stats.num_blocks;
  return json;
}

// After an unload only the model's name remains.
std::string outcome_json(const ServerState& state, const std::string& name) {
  Json json{{"name", name}, {"state", model_state_name(ModelState::kUnloaded)}};
  for (const ModelReport& report : state.admin.models()) {
    if (report.entry.name == name) json = report_json(report);
  }
  json["success"] = true;  // llama-server's member
  return dump_json(json);
}

template <class T>
void take_field(T& field, const std::optional<std::string>& text) {
  if (text) field = *text;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000.0 * seconds));
}

void read_load_fields(FieldReader& reader, ModelEntry& model) {
  take_field(model.model.path, reader.string(fields::admin::kPath));
  model.preload = reader.boolean(fields::admin::kPreload, true);
  take_field(model.model.chat_template, reader.string(fields::admin::kChatTemplate));
  take_field(model.model.tool_format, reader.string(fields::admin::kToolFormat));
  take_field(model.model.packed_cache, reader.string(fields::admin::kPackedCache));
  model.model.alias = reader.string_or_strings(fields::admin::kAliases).value_or(std::vector<std::string>());
  model.max_model_len = reader.integer(fields::admin::kMaxModelLen);
  model.max_num_seqs = reader.integer(fields::admin::kMaxNumSeqs);
  model.kv_memory = reader.integer(fields::admin::kKvMemory).value_or(0);
  model.max_queued_requests = reader.integer(fields::admin::kMaxQueuedRequests);
  if (const auto time = reader.number(fields::admin::kMaxQueueTime)) model.max_queue_time = milliseconds_of(*time);
  if (const auto time = reader.number(fields::admin::kSleepAfter)) model.sleep_after = milliseconds_of(*time);
  if (const auto dtype = reader.string(fields::admin::kKvDtype)) {
    model.kv_dtype = kv_dtype_of(*dtype);
    if (!model.kv_dtype)
      reader.fail(fields::admin::kKvDtype, "Invalid value for 'kv_dtype': '" + *dtype + "' is no type of a cache");
  }
  for (const std::string& alias : model.model.alias) {
    if (!is_model_name(alias)) reader.fail(fields::admin::kAliases, "'aliases' must be names without spaces");
  }
}

// The path of a model that was downloaded before.
Result<std::filesystem::path> downloaded_path([[maybe_unused]] const std::string& text) {
  if constexpr (is_built(Module::kHub)) {
    const auto reference = hub::parse_reference(text);
    if (!reference) return tl::make_unexpected(reference.error());
    const auto environment = hub::find_environment();
    if (!environment) return tl::make_unexpected(environment.error());
    auto found = hub::HubCache(environment->cache).find(*reference);
    if (!found) return tl::make_unexpected(found.error());
    return std::move(found->path);
  }
  return invalid("'hf' " + left_out(Module::kHub), "hf");
}

// Reads `hf`, the name of a downloaded model, which replaces `path`.
Result<void> find_downloaded(FieldReader& reader, ModelEntry& model) {
  const auto text = reader.string(fields::admin::kHf);
  if (!text) return {};
  if (!model.model.path.empty()) return invalid("'hf' and 'path' exclude each other", "hf");
  auto path = downloaded_path(*text);
  if (!path) return tl::make_unexpected(path.error());
  model.model.hf = *text;
  model.model.path = *std::move(path);
  return {};
}

// Folders of the files that an admin's call may name: those where an operator put models.
std::vector<std::filesystem::path> allowed_folders(const ServerState& state) {
  const auto settings = state.settings();
  if (!settings->options.model_root.empty()) return {settings->options.model_root};
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::filesystem::path& path) {
    folders.push_back(std::filesystem::absolute(path).lexically_normal().parent_path());
  };
  for (const ModelReport& report : state.admin.models()) {
    add(report.path);
    for (const AdapterPath& adapter : report.adapters)
      if (adapter.is_configured) add(adapter.path);
  }
  if constexpr (is_built(Module::kHub)) {
    const auto hub = hub::find_environment();
    if (settings->options.pull.enabled && hub) folders.push_back(hub->cache);
  }
  return folders;
}

Result<void> check_paths(const ServerState& state, const ModelOptions& model) {
  const std::pair<const char*, const std::filesystem::path*> paths[] = {
      {"path", &model.path}, {"chat_template", &model.chat_template}, {"packed_cache", &model.packed_cache}};
  for (const auto& [name, path] : paths) {
    if (path->empty()) continue;
    if (const auto allowed = check_path(state, name, *path); !allowed) return allowed;
  }
  return {};
}

Result<std::string> read_name(FieldReader& reader, const ServerState& state) {
  auto name = reader.string(fields::admin::kName);
  if (!name) name = reader.string(fields::admin::kModel);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto& entries = state.models()->entries();
  if (!name && entries.empty()) return invalid("'name' is required", "name", "missing_required_parameter");
  if (!name) return entries.front().name;
  if (!is_model_name(*name)) return invalid("'name' must be a name without spaces", "name");
  return *name;
}

Result<ModelOrder> read_order(ServerState& state, What what, FieldReader& reader) {
  ModelOrder order;
  order.what = what;
  auto name = read_name(reader, state);
  if (!name) return tl::make_unexpected(name.error());
  order.model.name = *std::move(name);
  if (what == What::kLoad) {
    read_load_fields(reader, order.model);
    if (const auto found = find_downloaded(reader, order.model); !found) return tl::make_unexpected(found.error());
  }
  if (what == What::kReplace) {
    const auto path = reader.string(fields::admin::kPath);
    order.share = reader.number(fields::admin::kShare);
    if (!path && !order.share) reader.missing(fields::admin::kPath);
    order.model.model.path = path.value_or("");
    order.in_place = reader.word(fields::admin::kMode) == "in_place";
    if (order.share && order.in_place)
      reader.fail(fields::admin::kShare, "'share' needs both versions: not with 'mode' 'in_place'");
  }
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (const auto allowed = check_paths(state, order.model.model); !allowed) return tl::make_unexpected(allowed.error());
  return order;
}

// Starts the order. `waits`: the response waits for its end.
Result<AdminTask> carry_out(ServerState& state, const ModelOrder& order, bool waits) {
  const auto finish = [&state, name = order.model.name]() -> Result<std::string> { return outcome_json(state, name); };
  if (waits)
    return AdminTask{.until = [&state, order](auto done) { state.admin.order(order, done); }, .finish = finish};
  // Shared, because the report may come long after this response.
  const auto refused = std::make_shared<std::pair<std::mutex, std::optional<Error>>>();
  state.admin.order(order, [refused](std::optional<Error> error) {
    const std::lock_guard lock(refused->first);
    refused->second = std::move(error);
  });
  const std::lock_guard lock(refused->first);
  if (refused->second) return tl::make_unexpected(*refused->second);
  return AdminTask{.finish = finish, .status = 202};
}

Result<AdminTask> give_order(ServerState& state, const Call& call, What what, const fields::FieldTable& table) {
  if (!state.admin.order || !state.models()) return tl::make_unexpected(still_starting());
  const auto parsed = parse_known_members(call.body.empty() ? "{}" : call.body, table);
  if (!parsed) return tl::make_unexpected(parsed.error());
  FieldReader reader(*parsed);
  const bool waits = reader.boolean(fields::admin::kWait, true);
  const auto order = read_order(state, what, reader);
  if (!order) return tl::make_unexpected(order.error());
  const std::string path = order->model.model.path.string();
  log::info("admin: {} asks to {} the model {}{}{}{}", asker(call), verb(what), order->model.name,
            path.empty() ? "" : ": ", printable(path), order->in_place ? ", in place" : "");
  return carry_out(state, *order, waits);
}

}  // namespace

Result<void> check_path(const ServerState& state, const char* field, const std::filesystem::path& path) {
  const auto holds = [&](const std::filesystem::path& folder) { return is_below(path, folder); };
  if (std::ranges::any_of(allowed_folders(state), holds)) return {};
  return tl::make_unexpected(
      Error{ErrorKind::kForbidden,
            std::string("'") + field + "' is outside of server.model_root, or of the configured models' folders",
            "path_not_allowed", field, std::nullopt});
}

Result<Json> parse_known_members(std::string_view body, const fields::FieldTable& table) {
  auto parsed = parse_json_object(body);
  if (!parsed) return parsed;
  for (const auto& [name, value] : parsed->items()) {
    if (std::ranges::find(table.rows, name, &fields::Field::name) == table.rows.end()) {
      return invalid("'" + printable(name) + "' is not known here", printable(name), "unknown_parameter");
    }
  }
  return parsed;
}

std::string asker(const Call& call) {
  return call.key_name.empty() ? "the admin listener" : "the key " + call.key_name;
}

bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  if (std::find(path.begin(), path.end(), "..") != path.end()) return false;
  const auto whole = std::filesystem::absolute(path).lexically_normal();
  auto root = std::filesystem::absolute(folder).lexically_normal();
  if (!root.has_filename()) root = root.parent_path();  // "/models/" is "/models"
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), whole.begin(), whole.end());
  return end == root.end() || root == root.root_path();
}

Result<AdminTask> admin_list_models(ServerState& state, const Call&) {
  if (!state.admin.models) return tl::make_unexpected(still_starting());
  return AdminTask{.finish = [&state]() -> Result<std::string> {
    Json body{{"object", "list"}, {"data", Json::array()}};
    for (const ModelReport& report : state.admin.models())
      body["data"].push_back(report_json(report));
    return dump_json(body);
  }};
}

Result<AdminTask> admin_load_model(ServerState& state, const Call& call) {
  return give_order(state, call, What::kLoad, fields::kLoadFields);
}

Result<AdminTask> admin_unload_model(ServerState& state, const Call& call) {
  return give_order(state, call, What::kUnload, fields::kModelNameFields);
}

Result<AdminTask> admin_sleep_model(ServerState& state, const Call& call) {
  return give_order(state, call, What::kSleep, fields::kModelNameFields);
}

Result<AdminTask> admin_wake_model(ServerState& state, const Call& call) {
  return give_order(state, call, What::kWake, fields::kModelNameFields);
}

Result<AdminTask> admin_replace_model(ServerState& state, const Call& call) {
  return give_order(state, call, What::kReplace, fields::kReplaceFields);
}

Result<AdminTask> admin_is_sleeping(ServerState& state, const Call&) {
  const auto table = state.models();
  if (!table) return tl::make_unexpected(still_starting());
  const auto& entries = table->entries();
  const bool sleeps = std::none_of(entries.begin(), entries.end(),
                                   [](const TableEntry& model) { return model.state == ModelState::kReady; });
  return AdminTask{.finish = [sleeps]() -> Result<std::string> { return dump_json(Json{{"is_sleeping", sleeps}}); }};
}

}  // namespace quire
