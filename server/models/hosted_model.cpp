#include "server/models/hosted_model.h"

#include <ctime>

namespace quire {

namespace {

// A request for a model that failed to load tries again, but not before this.
constexpr std::chrono::seconds kRetryAfter{10};
constexpr std::chrono::seconds kUnusedAfter{10};  // time after which an unused model counts as idle

}  // namespace

ModelOutcome::~ModelOutcome() {
  for (const auto& [done, error] : reports)
    done(error);
}

void ModelOutcome::report(ModelDone done, std::optional<Error> error) {
  reports.emplace_back(std::move(done), std::move(error));
}

void ModelOutcome::report(std::vector<ModelDone>& all, const std::optional<Error>& error) {
  for (ModelDone& done : all)
    report(std::move(done), error);
  all.clear();
}

HostedModel::HostedModel(HostedModelSpec wanted)
    : spec(std::move(wanted)),
      created(static_cast<std::int64_t>(std::time(nullptr))),
      waiting_places(std::make_shared<RequestQueue>(spec.engine.queue)) {}

bool HostedModel::is_busy() const {
  return replacing || is_loading() || state == ModelState::kDraining;
}

bool HostedModel::can_give_up() const {
  return replacing || is_loading() || (state == ModelState::kDraining && after == After::kLoad);
}

Error HostedModel::not_loaded() const {
  return Error{ErrorKind::kUnavailable, "The model '" + spec.name + "' could not be loaded", "model_failed", "model",
               kRetryAfter};
}

bool HostedModel::failed_lately(Clock::time_point now) const {
  return state == ModelState::kFailed && now - *failed_at < kRetryAfter;
}

TableEntry HostedModel::row() const {
  TableEntry entry;
  entry.name = spec.name;
  entry.aliases = spec.aliases;
  for (const AdapterPath& adapter : spec.adapters) {
    if (!spec.is_canary) entry.adapters.push_back({adapter.name, adapter.path.filename().string()});
  }
  entry.created = created;
  entry.state = state;
  entry.failure = failure;
  entry.info = info;
  entry.max_model_len = max_model_len;
  entry.served = served;
  entry.running = running;
  entry.canary_share = canary_share;
  return entry;
}

ModelReport HostedModel::report() const {
  return {row(),     spec.model.path,   spec.adapters, running ? promised : 0, spec.sleep_after,
          replacing, spec.is_configured};
}

void HostedModel::put(BroughtUp loaded) {
  running = std::move(loaded.running);
  served = std::move(loaded.served);
  promised = loaded.promised;
  promised_on_host = loaded.promised_on_host;
  info = served->info;
  max_model_len = served->max_model_len;
  state = ModelState::kReady;
  failure.clear();
  failed_at.reset();
  fallback.reset();
  replacing = false;
  last_steps = 0;
  active_at = Clock::now();
}

void HostedModel::note_work(Clock::time_point now) {
  const EngineStats stats = running->stats();
  if (stats.num_steps != last_steps || stats.num_running > 0 || stats.num_waiting > 0) active_at = now;
  last_steps = stats.num_steps;
}

bool HostedModel::is_idle(Clock::time_point now) {
  if (state != ModelState::kReady || replacing || spec.is_canary || canary_share > 0.0) return false;
  note_work(now);
  const EngineStats stats = running->stats();
  const bool has_served = stats.num_steps > 0 || now - active_at >= kUnusedAfter;
  return has_served && stats.num_running == 0 && stats.num_waiting == 0;
}

void HostedModel::take_over(const HostedModelSpec& wanted, std::shared_ptr<ServedModel> view) {
  const HostedModelSpec before = std::exchange(spec, wanted);
  spec.model.path = before.model.path;
  spec.adapters = before.adapters;
  spec.template_text.reset();  // a later load reads the file again
  spec.engine.kv_cache.memory = before.engine.kv_cache.memory;
  waiting_places->reconfigure(wanted.engine.queue, {});
  if (!view) return;
  view->queue = served->queue;
  served = std::move(view);
  running->reconfigure(wanted.engine);
}

}  // namespace quire
