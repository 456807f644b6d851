// LiveModels: a canary beside a model, which is promoted or removed.
#include <ctime>

#include "core/base/log.h"
#include "server/api/common/canary.h"
#include "server/models/live_models.h"

namespace quire {

namespace {

Error conflict(const std::string& name, const std::string& why) {
  return Error{ErrorKind::kConflict, "The model '" + name + "' " + why, "model_busy", "name", std::nullopt};
}

}  // namespace

void LiveModels::split(const std::string& name, const std::filesystem::path& path, double share, Done done) {
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const EntryPtr canary = find(canary_name(name));
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry || entry->state != ModelState::kReady || entry->replacing) {
    return refuse(conflict(name, "is not ready, or is being replaced: only a model that serves can have a canary"));
  }
  if (share == 0.0) {
    entry->canary_share = 0.0;
    if (!canary) return outcome.report(std::move(done));
    log::info("{} takes all of its traffic back from {}", name, canary->spec.model.path.string());
    return drop_canary(canary, std::move(done), outcome);
  }
  if (!canary) {
    if (path.empty()) return refuse(conflict(name, "has no canary: name the 'path' of its file"));
    return begin_canary(*entry, path, share, std::move(done));
  }
  if (!path.empty() && path != canary->spec.model.path) {
    return refuse(conflict(name, "has a canary already: end it with 'share': 0 first"));
  }
  if (canary->state != ModelState::kReady || canary->replacing) {
    return refuse(conflict(canary->spec.name, "is not ready: ask again once it is loaded"));
  }
  outcome.report(std::move(done));
  if (share == 1.0) return promote(*entry, canary, outcome);
  entry->canary_share = share;
  log::info("{} gets {} of the traffic of {}", canary->spec.name, share, name);
  publish();
}

// Loads it beside the model, with the same limit on waiting requests; answers its callers once it has its share.
void LiveModels::begin_canary(const Entry& entry, const std::filesystem::path& path, double share, Done done) {
  const auto canary = std::make_shared<Entry>();
  canary->spec = entry.spec;
  canary->spec.name = canary_name(entry.spec.name);
  canary->spec.aliases.clear();
  canary->spec.is_canary = true;
  canary->spec.model.path = path;
  canary->spec.sleep_after = std::chrono::milliseconds(0);
  canary->spec.is_configured = false;
  canary->created = static_cast<std::int64_t>(std::time(nullptr));
  canary->waiting_places = std::make_shared<RequestQueue>(canary->spec.engine.queue);
  entries_.push_back(canary);
  canary->callers.push_back([this, name = entry.spec.name, share, done = std::move(done)](std::optional<Error> error) {
    if (error) return done(std::move(error));
    split(name, {}, share, done);
  });
  begin_load(canary, ModelState::kLoading);
}

void LiveModels::drop_canary(const EntryPtr& canary, Done done, Outcome& outcome) {
  if (canary->can_give_up()) {
    abandon(canary, After::kUnload, conflict(canary->spec.name, "is not wanted any more"), outcome);
  } else if (canary->state == ModelState::kReady) {
    begin_drain(*canary, After::kUnload, outcome);
  } else if (canary->state != ModelState::kDraining) {
    take_out(canary);
  }
  if (canary->state == ModelState::kDraining) return canary->callers.push_back(std::move(done));
  outcome.report(std::move(done));
}

// Running requests of both versions finish where they are.
void LiveModels::promote(Entry& entry, const EntryPtr& canary, Outcome& outcome) {
  log::info("{} is {} now, was {}", entry.spec.name, canary->spec.model.path.string(), entry.spec.model.path.string());
  entry.spec.model.path = canary->spec.model.path;
  Loaded loaded{std::move(canary->running), nullptr, canary->promised, canary->promised_on_host};
  auto served = loaded.running->describe(entry.spec);
  served->queue = canary->served->queue;
  loaded.served = std::move(served);
  outcome.dropped.push_back(std::move(entry.running));
  std::erase(entries_, canary);
  put(entry, std::move(loaded));
  entry.canary_share = 0.0;
  publish();
}

}  // namespace quire
