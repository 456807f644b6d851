#include "server/admin/handlers.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "server/admin/model_handlers.h"
#include "server/api/common/errors.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/api/fields/admin.h"
#include "server/hub/environment.h"
#include "server/hub/hub_cache.h"
#include "server/hub/pull_runner.h"
#include "server/ops/keys/admin.h"
#include "server/run/admin_task.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"

namespace quire {

namespace {

Error forbidden(const char* code, std::string message) {
  return Error{ErrorKind::kForbidden, std::move(message), code, "model", std::nullopt};
}

bool is_listed(const std::vector<std::string>& repositories, const std::string& repository) {
  const std::string owner = repository.substr(0, repository.find('/'));
  return repositories.empty() || std::any_of(repositories.begin(), repositories.end(), [&](const std::string& each) {
           return each == repository || each == owner + "/*";
         });
}

// Returns the environment if server.pull allows downloads at all.
Result<hub::HubEnvironment> allowed_environment(const ServerState& state, const Call& call) {
  const auto settings = state.settings();
  if (!call.is_admin) {
    return tl::make_unexpected(
        forbidden("admin_key_required", "Downloading and deleting models needs an admin key or the admin listener"));
  }
  if (!settings->options.pull.enabled) {
    return tl::make_unexpected(
        forbidden("pull_disabled",
                  "This server downloads no models: its operator can set server.pull.enabled, or run quire pull"));
  }
  if (state.admin.pulls == nullptr || !state.models()) return tl::make_unexpected(still_starting());
  if (state.phase.load() > ServerPhase::kServing) return tl::make_unexpected(shutting_down());
  auto environment = hub::find_environment();
  if (!environment) return environment;
  const std::string& root = settings->options.model_root;
  if (!root.empty() && !is_below(environment->cache, root)) {
    return tl::make_unexpected(
        forbidden("path_not_allowed",
                  "The cache of downloads is outside of server.model_root: set HF_HUB_CACHE to a folder in it"));
  }
  return environment;
}

struct AllowedPull {
  hub::HubEnvironment environment;
  hub::ModelReference model;
};

Result<AllowedPull> allowed_pull(const ServerState& state, const Call& call, const std::string& text) {
  auto environment = allowed_environment(state, call);
  if (!environment) return tl::make_unexpected(environment.error());
  auto model = hub::parse_reference(text);
  if (!model) return tl::make_unexpected(model.error());
  if (!is_listed(state.settings()->options.pull.repositories, model->repository)) {
    return tl::make_unexpected(
        forbidden("repository_not_allowed", "'" + model->repository + "' is not among server.pull.repositories"));
  }
  return AllowedPull{*std::move(environment), *std::move(model)};
}

Result<PullTask> begin_pull(ServerState& state, const Call& call, const AllowedPull& allowed) {
  log::info("admin: {} asks to pull {}", asker(call), allowed.model.text());
  auto lease = state.admin.pulls->pull(allowed.environment, allowed.model, state.settings()->options.pull.max_bytes);
  if (!lease) return tl::make_unexpected(lease.error());
  PullTask task;
  task.lease = *std::move(lease);
  return task;
}

// The entry of a model that sleeps until its first request.
Result<ModelEntry> entry_for(const std::string& name, const hub::ModelReference& model) {
  if (!is_model_name(name)) return invalid("'name' must be a name without spaces", "name");
  ModelEntry entry;
  entry.name = name;
  entry.model.hf = model.text();
  entry.preload = false;
  if (name != model.text()) entry.model.alias = {model.text()};
  return entry;
}

// Lets the download be served as `entry`.
void serve_as(ServerState& state, const ModelEntry& entry, PullTask& task) {
  task.served_name = entry.name;
  task.serve = [&state, entry](const std::filesystem::path& path, std::function<void(std::optional<Error>)> done) {
    ModelOrder order;
    order.model = entry;
    order.model.model.path = path;
    state.admin.order(order, std::move(done));
  };
}

Result<std::string> wanted_model(FieldReader& reader) {
  auto name = reader.string(fields::admin::kModel);
  if (!name) name = reader.string(fields::admin::kName);
  if (!name) reader.missing(fields::admin::kModel);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return *std::move(name);
}

// The served models whose files are this cached model's.
std::vector<ModelReport> users_of(const ServerState& state, const hub::HubCache& cache,
                                  const hub::ModelReference& model) {
  const auto found = cache.find(model);
  std::vector<ModelReport> users;
  for (ModelReport& report : state.admin.models()) {
    if (report.entry.state == ModelState::kUnloaded) continue;
    const bool whole = model.wanted.empty() && is_below(report.path, cache.repository_folder(model.repository));
    if (whole || (found && report.path == found->path)) users.push_back(std::move(report));
  }
  return users;
}

Error in_use(const ModelReport& report) {
  return Error{ErrorKind::kConflict,
               "The model '" + report.entry.name + "' uses these files: " +
                   (report.is_configured ? "take it out of the configuration first" : "unload it first"),
               "model_in_use", "model", std::nullopt};
}

Result<std::string> remove_files(const hub::HubCache& cache, const hub::ModelReference& model) {
  const auto freed = cache.remove(model);
  if (!freed) return tl::make_unexpected(freed.error());
  log::info("admin: {} is deleted from the cache", model.text());
  return dump_json(Json{{"model", model.text()}, {"freed_bytes", *freed}, {"success", true}});
}

// Resolves a name in Ollama's API: a served model's files, or a hub reference.
Result<hub::ModelReference> reference_of(const ServerState& state, const hub::HubCache& cache,
                                         const std::string& name) {
  const auto entry = state.models()->entry(name);
  if (!entry) return hub::parse_reference(name);
  for (const ModelReport& report : state.admin.models()) {
    if (report.entry.name != (*entry)->name) continue;
    for (const hub::CachedModel& model : cache.content().models) {
      if (model.path == report.path) return model.reference;
    }
  }
  return tl::make_unexpected(
      forbidden("model_not_downloaded", "'" + name + "' was not downloaded: its files are the operator's"));
}

}  // namespace

Result<AdminTask> admin_pull_model(ServerState& state, const Call& call) {
  const auto body = parse_known_members(call.body, fields::kPullFields);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto text = wanted_model(reader);
  if (!text) return tl::make_unexpected(text.error());
  const bool streams = reader.boolean(fields::admin::kStream, false);
  const bool waits = reader.boolean(fields::admin::kWait, true);
  const bool loads = reader.boolean(fields::admin::kLoad, false);
  const auto name = reader.string(fields::admin::kServedName);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!waits && (streams || loads)) return invalid("'wait': false excludes 'stream' and 'load'", "wait");
  const auto allowed = allowed_pull(state, call, *text);
  if (!allowed) return tl::make_unexpected(allowed.error());
  std::optional<ModelEntry> serves;
  if (loads) {
    const auto entry = entry_for(name.value_or(allowed->model.text()), allowed->model);
    if (!entry) return tl::make_unexpected(entry.error());
    serves = *entry;
  }
  auto task = begin_pull(state, call, *allowed);
  if (!task) return tl::make_unexpected(task.error());
  if (serves) serve_as(state, *serves, *task);
  if (streams) task->form = PullTask::Form::kEvents;
  if (waits) return AdminTask{.pull = *std::move(task)};
  state.admin.pulls->keep(task->lease);
  return AdminTask{.finish = [model = allowed->model.text()]() -> Result<std::string> {
                     return dump_json(Json{{"model", model}, {"status", "pulling"}});
                   },
                   .status = 202};
}

Result<AdminTask> admin_remove_model(ServerState& state, const Call& call) {
  const auto body = parse_known_members(call.body, fields::kRemoveFields);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto text = wanted_model(reader);
  if (!text) return tl::make_unexpected(text.error());
  const auto allowed = allowed_pull(state, call, *text);
  if (!allowed) return tl::make_unexpected(allowed.error());
  const hub::HubCache cache(allowed->environment.cache);
  const auto users = users_of(state, cache, allowed->model);
  if (!users.empty()) return tl::make_unexpected(in_use(users.front()));
  log::info("admin: {} asks to delete {}", asker(call), allowed->model.text());
  return AdminTask{.finish = [cache, model = allowed->model] { return remove_files(cache, model); }};
}

Result<AdminTask> admin_list_cache(ServerState& state, const Call& call) {
  const auto environment = allowed_environment(state, call);
  if (!environment) return tl::make_unexpected(environment.error());
  return AdminTask{.finish = [&state, cache = hub::HubCache(environment->cache)]() -> Result<std::string> {
    const hub::CacheContent content = cache.content();
    Json body{{"folder", cache.folder().string()}, {"models", Json::array()}, {"pulls", Json::array()}};
    for (const hub::CachedModel& model : content.models) {
      body["models"].push_back({{"model", model.reference.text()},
                                {"commit", model.commit},
                                {"path", model.path.string()},
                                {"bytes", model.num_bytes},
                                {"complete", !model.path.empty()}});
    }
    for (const auto& job : state.admin.pulls->jobs()) {
      const hub::PullProgress progress = job->state().progress;
      body["pulls"].push_back(
          {{"model", job->model().text()}, {"completed", progress.num_bytes}, {"total", progress.size}});
    }
    return dump_json(body);
  }};
}

Result<AdminTask> ollama_pull(ServerState& state, const Call& call) {
  const auto body = parse_json_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto text = wanted_model(reader);
  if (!text) return tl::make_unexpected(text.error());
  const bool streams = reader.boolean(fields::admin::kStream, true);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!state.models()) return tl::make_unexpected(still_starting());
  auto allowed = allowed_pull(state, call, *text);
  if (!allowed && state.models()->entry(*text)) {
    return AdminTask{.finish = []() -> Result<std::string> { return dump_json(Json{{"status", "success"}}); }};
  }
  if (!allowed) {
    allowed.error().message = "This server does not serve '" + printable(*text) + "'. " + allowed.error().message;
    return tl::make_unexpected(allowed.error());
  }
  const auto entry = entry_for(*text, allowed->model);
  if (!entry) return tl::make_unexpected(entry.error());
  auto task = begin_pull(state, call, *allowed);
  if (!task) return tl::make_unexpected(task.error());
  serve_as(state, *entry, *task);
  task->is_ollama = true;
  if (streams) task->form = PullTask::Form::kLines;
  return AdminTask{.pull = *std::move(task)};
}

Result<AdminTask> ollama_delete(ServerState& state, const Call& call) {
  const auto body = parse_json_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto text = wanted_model(reader);
  if (!text) return tl::make_unexpected(text.error());
  const auto environment = allowed_environment(state, call);
  if (!environment) return tl::make_unexpected(environment.error());
  const hub::HubCache cache(environment->cache);
  const auto model = reference_of(state, cache, *text);
  if (!model) return tl::make_unexpected(model.error());
  const auto users = users_of(state, cache, *model);
  for (const ModelReport& user : users) {
    if (user.is_configured || users.size() > 1) return tl::make_unexpected(in_use(user));
  }
  log::info("admin: {} asks to delete {}", asker(call), model->text());
  AdminTask task{.finish = [cache, model = *model] { return remove_files(cache, model); }};
  if (users.empty()) return task;
  ModelOrder order;
  order.what = ModelOrder::What::kUnload;
  order.model.name = users.front().entry.name;
  task.until = [&state, order](auto done) { state.admin.order(order, done); };
  return task;
}

}  // namespace quire
