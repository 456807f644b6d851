// LiveModels: the work on the thread `models`; adapters of serving models; a canary beside a model.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "server/api/common/model_table.h"
#include "server/models/live_models.h"

namespace quire {

namespace {

Error adapter_error(ErrorKind kind, std::string message, const char* code) {
  return Error{kind, std::move(message), code, "lora_name", std::nullopt};
}

auto find_path(HostedModelSpec& spec, const std::string& name) {
  return std::ranges::find(spec.adapters, name, &AdapterPath::name);
}

Error conflict(const std::string& name, const std::string& why) {
  return Error{ErrorKind::kConflict, "The model '" + name + "' " + why, "model_busy", "name", std::nullopt};
}

}  // namespace

void LiveModels::load_now(const EntryPtr& entry, const std::stop_token& stop) {
  HostedModelSpec spec;
  {
    const std::lock_guard lock(mutex_);
    if (stop.stop_requested()) return;
    entry->begun = true;
    spec = entry->spec;
  }
  const auto began = Clock::now();
  auto loaded = loader_.load(spec, stop);
  if (!loaded && !stop.stop_requested()) return;  // the process ends
  const bool lacks_room = loaded && !*loaded && loaded->error().kind == ErrorKind::kNoMemory;
  const bool can_have_room = lacks_room && fits_without_idle(spec);
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) {
    // The loader may have finished before noticing: then the abandonment ends once the model was released.
    if (!loaded || !*loaded) return after_drain(entry, outcome);
    entry->draining = (*loaded)->running.get();
    return;
  }
  if (can_have_room && !entry->waiting.empty() && take_room(*entry, outcome)) return;
  if (!*loaded) return note_failure(entry, loaded->error(), outcome);
  log::info("{} is loaded after {} ms", spec.name,
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count());
  entry->put(**std::move(loaded));
  outcome.report(entry->callers);
  outcome.report(entry->waiting);
  publish();
}

// Returns whether the model would fit if all idle ones slept.
bool LiveModels::fits_without_idle(const HostedModelSpec& spec) {
  std::uint64_t promised = 0;
  std::uint64_t promised_on_host = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const EntryPtr& entry : entries_) {
      if (!entry->is_idle(Clock::now())) continue;
      promised += entry->promised;
      promised_on_host += entry->promised_on_host;
    }
  }
  if (promised + promised_on_host == 0) return false;
  return !loader_.refusal_without(spec, promised, promised_on_host);
}

// Puts the least recently used idle model to sleep; the load begins again once its memory is released.
bool LiveModels::take_room(HostedModel& entry, ModelOutcome& outcome) {
  const auto now = Clock::now();
  HostedModel* oldest = nullptr;
  for (const EntryPtr& each : entries_) {
    if (each->is_idle(now) && (oldest == nullptr || each->active_at < oldest->active_at)) oldest = each.get();
  }
  if (oldest == nullptr) return false;
  log::info("{} goes to sleep, idle for the longest time: {} needs its memory", oldest->spec.name, entry.spec.name);
  begin_drain(*oldest, After::kSleep, outcome);
  entry.makes_room = oldest->draining;
  entry.begun = false;
  return true;
}

void LiveModels::note_failure(const EntryPtr& entry, const Error& error, ModelOutcome& outcome) {
  log::error("{}", error.message);
  outcome.report(entry->callers, error);
  if (entry->fallback) {
    entry->spec = *std::exchange(entry->fallback, std::nullopt);
    log::info("{} goes back to {}", entry->spec.name, entry->spec.model.path.string());
    return begin_load(entry, ModelState::kLoading);
  }
  outcome.report(entry->waiting, entry->not_loaded());
  entry->state = ModelState::kFailed;
  entry->failure = error.message;
  entry->failed_at = Clock::now();
  if (!entry->spec.is_configured && !entry->info) std::erase(entries_, entry);
  publish();
}

void LiveModels::replace_beside(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop) {
  if (stop.stop_requested()) return;
  auto loaded = loader_.load(spec, stop);
  if (!loaded) return;
  std::optional<Error> error;
  if (!*loaded) error = loaded->error();
  if (error && error->kind == ErrorKind::kNoMemory) error->message += R"(; "mode": "in_place" needs room for one only)";
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) return;
  outcome.report(entry->callers, error);
  entry->replacing = false;
  if (error) return log::error("{}", error->message);
  log::info("{} is {} now, was {}", spec.name, spec.model.path.string(), entry->spec.model.path.string());
  entry->spec = std::move(spec);
  outcome.dropped.push_back(std::move(entry->running));
  entry->put(**std::move(loaded));
  publish();
}

// Checks that the new model would load, before the old one is given up.
void LiveModels::check_in_place(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop) {
  if (stop.stop_requested()) return;
  const auto error = loader_.refusal_without(spec, entry->promised, entry->promised_on_host);
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) return;
  entry->replacing = false;
  if (error) {
    log::error("{}", error->message);
    return outcome.report(entry->callers, error);
  }
  entry->fallback = std::exchange(entry->spec, std::move(spec));
  begin_drain(*entry, After::kLoad, outcome);
}

void LiveModels::note_release(const RunningModel* model) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : std::vector<EntryPtr>(entries_)) {
    if (entry->makes_room == model) begin_load(entry, entry->state);
    if (entry->draining != model) continue;
    entry->draining = nullptr;
    after_drain(entry, outcome);
  }
}

void LiveModels::after_drain(const EntryPtr& entry, ModelOutcome& outcome) {
  if (entry->after == After::kLoad) return begin_load(entry, ModelState::kLoading);
  outcome.report(entry->callers);
  if (entry->after == After::kUnload) return take_out(entry);
  log::info("{} sleeps", entry->spec.name);
  entry->state = ModelState::kSleeping;
  if (!entry->waiting.empty()) return begin_load(entry, ModelState::kWaking);
  publish();
}

// Reason why the model cannot take the adapter now.
std::optional<Error> LiveModels::adapter_refusal(const EntryPtr& entry, const std::string& name, bool in_place) const {
  const std::string model = entry->spec.name;
  if (!entry->spec.model.adapter_updates) {
    return adapter_error(ErrorKind::kForbidden,
                         "The model '" + model + "' takes no adapters while it is served: set model.adapter_updates",
                         "adapter_updates_disabled");
  }
  const bool is_there = find_path(entry->spec, name) != entry->spec.adapters.end();
  if (is_there && !in_place) {
    return adapter_error(ErrorKind::kInvalidRequest,
                         "The lora adapter '" + name +
                             "' has already been loaded. If you want to load the adapter in place, set 'load_inplace' "
                             "to True.",
                         "adapter_exists");
  }
  if (!is_there && entry->spec.adapters.size() >= kMostAdapters) {
    return adapter_error(ErrorKind::kConflict,
                         "The model '" + model + "' has " + std::to_string(kMostAdapters) + " adapters already",
                         "too_many_adapters");
  }
  const bool is_taken =
      std::ranges::any_of(entries_, [&](const EntryPtr& each) { return answers_to(each->spec, name); });
  if (is_taken && !is_there) {
    return adapter_error(ErrorKind::kInvalidRequest,
                         "The name '" + name + "' belongs to a model, or to an adapter of another model",
                         "model_name_taken");
  }
  if (entry->state == ModelState::kReady && !entry->replacing && entry->canary_share == 0.0) return std::nullopt;
  return Error{ErrorKind::kConflict,
               "The model '" + model + "' is not ready, or is being replaced: ask again once it serves alone",
               "model_busy", "model", std::chrono::seconds(1)};
}

void LiveModels::load_adapter(const std::string& model, const AdapterPath& adapter, bool in_place, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const EntryPtr& entry) {
    return model.empty() ? entry->state != ModelState::kUnloaded : entry->spec.name == model;
  });
  if (found == entries_.end()) {
    return outcome.report(std::move(done), Error{ErrorKind::kNotFound, "There is no model '" + model + "'",
                                                 "model_not_found", "model", std::nullopt});
  }
  if (auto refused = adapter_refusal(*found, adapter.name, in_place))
    return outcome.report(std::move(done), std::move(refused));
  thread_->post([this, entry = *found, adapter, in_place, done = std::move(done)] {
    load_adapter_now(entry, adapter, in_place, done);
  });
}

// Checks the model's state again, as it may have changed since the call, and once more after reading the file.
void LiveModels::load_adapter_now(const EntryPtr& entry, const AdapterPath& adapter, bool in_place, const Done& done) {
  std::shared_ptr<RunningModel> running;
  ModelOutcome outcome;
  {
    const std::lock_guard lock(mutex_);
    if (auto refused = adapter_refusal(entry, adapter.name, in_place)) return outcome.report(done, std::move(refused));
    running = entry->running;
  }
  try {
    const std::int64_t rank = running->adapters()->add(adapter.name, adapter.path);
    log::info("adapter {} of {}: {} of rank {}", adapter.name, entry->spec.name, adapter.path.string(), rank);
  } catch (const AdapterShortage& error) {
    return outcome.report(done, adapter_error(ErrorKind::kNoMemory, error.what(), "insufficient_memory"));
  } catch (const std::bad_alloc&) {
    return outcome.report(done,
                          adapter_error(ErrorKind::kNoMemory, "The system gave no memory", "insufficient_memory"));
  } catch (const std::exception& error) {
    return outcome.report(done, adapter_error(ErrorKind::kInvalidRequest, error.what(), "invalid_adapter"));
  }
  const std::lock_guard lock(mutex_);
  outcome.dropped.push_back(std::move(running));
  const bool serves = entry->running == outcome.dropped.back();
  if (!serves) {
    return outcome.report(done, Error{ErrorKind::kConflict, "The model was unloaded meanwhile", "model_busy", "model",
                                      std::chrono::seconds(1)});
  }
  const auto there = find_path(entry->spec, adapter.name);
  if (there == entry->spec.adapters.end()) {
    entry->spec.adapters.push_back(adapter);
  } else {
    *there = adapter;
  }
  publish();
  outcome.report(done);
}

void LiveModels::unload_adapter(const std::string& name, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : entries_) {
    const auto found = find_path(entry->spec, name);
    if (entry->spec.is_canary || found == entry->spec.adapters.end()) continue;
    if (auto refused = adapter_refusal(entry, name, true)) return outcome.report(std::move(done), std::move(refused));
    entry->spec.adapters.erase(found);
    entry->running->adapters()->remove(name);
    log::info("adapter {} of {} is unloaded", name, entry->spec.name);
    publish();
    return outcome.report(std::move(done));
  }
  outcome.report(
      std::move(done),
      adapter_error(ErrorKind::kNotFound, "The lora adapter '" + name + "' cannot be found.", "adapter_not_found"));
}

void LiveModels::split(const std::string& name, const std::filesystem::path& path, double share, Done done) {
  ModelOutcome outcome;
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
void LiveModels::begin_canary(const HostedModel& entry, const std::filesystem::path& path, double share, Done done) {
  const auto canary = std::make_shared<HostedModel>(entry.spec);
  canary->spec.name = canary_name(entry.spec.name);
  canary->spec.aliases.clear();
  canary->spec.is_canary = true;
  canary->spec.model.path = path;
  canary->spec.sleep_after = std::chrono::milliseconds(0);
  canary->spec.is_configured = false;
  entries_.push_back(canary);
  canary->callers.push_back([this, name = entry.spec.name, share, done = std::move(done)](std::optional<Error> error) {
    if (error) return done(std::move(error));
    split(name, {}, share, done);
  });
  begin_load(canary, ModelState::kLoading);
}

void LiveModels::drop_canary(const EntryPtr& canary, Done done, ModelOutcome& outcome) {
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
void LiveModels::promote(HostedModel& entry, const EntryPtr& canary, ModelOutcome& outcome) {
  log::info("{} is {} now, was {}", entry.spec.name, canary->spec.model.path.string(), entry.spec.model.path.string());
  entry.spec.model.path = canary->spec.model.path;
  BroughtUp loaded{std::move(canary->running), nullptr, canary->promised, canary->promised_on_host};
  auto served = loaded.running->describe(entry.spec);
  served->queue = canary->served->queue;
  loaded.served = std::move(served);
  outcome.dropped.push_back(std::move(entry.running));
  std::erase(entries_, canary);
  entry.put(std::move(loaded));
  entry.canary_share = 0.0;
  publish();
}

}  // namespace quire
