#include "server/models/live_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "server/api/common/errors.h"
#include "server/api/common/model_table.h"

namespace quire {

namespace {

constexpr std::chrono::milliseconds kLongestLook{1000};
constexpr std::chrono::milliseconds kShortestLook{20};

Error no_such_model(const std::string& name) {
  return Error{ErrorKind::kNotFound, "There is no model '" + name + "'", "model_not_found", "name", std::nullopt};
}

Error wrong_state(const std::string& name, ModelState state, const std::string& what_to_do) {
  return Error{ErrorKind::kConflict, "The model '" + name + "' is " + model_state_name(state) + ": " + what_to_do,
               std::string("model_") + model_state_name(state), "name", std::nullopt};
}

Error given_up(const std::string& name) {
  return Error{ErrorKind::kConflict,
               "The load of the model '" + name + "' was given up: something else was asked of it",
               "model_load_cancelled", "name", std::nullopt};
}

Error under_way(const std::string& name) {
  return Error{ErrorKind::kConflict, "Something else is under way with the model '" + name + "': ask again after it",
               "model_busy", "name", std::chrono::seconds(1)};
}

Error has_canary(const std::string& name) {
  return Error{ErrorKind::kConflict,
               "The model '" + name + "' has a canary: end it first, by /admin/models/replace with 'share' 0 or 1",
               "model_busy", "name", std::nullopt};
}

// A request's place in a queue while its model wakes; members are destroyed in reverse order.
struct WaitingRequest {
  std::shared_ptr<RequestQueue> places;
  QueueTicket ticket;
  LiveModels::Done done;
};

std::string advice(const std::string& name, const char* operation) {
  return fmt::format("POST /admin/models/{} with {{\"name\": \"{}\"}}", operation, name);
}

bool same_engine(const HostedModelSpec& a, const HostedModelSpec& b) {
  return a.engine.scheduler.max_model_len == b.engine.scheduler.max_model_len &&
         a.engine.scheduler.max_num_seqs == b.engine.scheduler.max_num_seqs &&
         a.engine.kv_cache.dtype == b.engine.kv_cache.dtype && a.kv_memory == b.kv_memory && a.kv_share == b.kv_share;
}

// Throws StartupError for a change that a reload cannot make.
void check_unchanged(const HostedModelSpec& spec, const HostedModelSpec& served) {
  if (!spec.is_only && spec.model.path != served.model.path) {
    throw StartupError(fmt::format("models: '{}' is served from {}, not {}: {} and the path first", spec.name,
                                   served.model.path.string(), spec.model.path.string(), advice(spec.name, "replace")));
  }
  if (!same_engine(spec, served)) {
    throw StartupError(
        fmt::format("models: '{}' cannot change its memory, max_num_seqs or max_model_len while the "
                    "server runs: a restart is needed",
                    spec.name));
  }
  if (spec.model.adapters != served.model.adapters || spec.model.adapter_memory != served.model.adapter_memory ||
      spec.model.adapter_updates != served.model.adapter_updates) {
    throw StartupError(fmt::format(
        "models: '{}' cannot change its adapters by a reload: /v1/load_lora_adapter, or a restart", spec.name));
  }
  if (spec.model.draft_model != served.model.draft_model) {
    throw StartupError(fmt::format(
        "models: '{}' cannot change its draft model while the server runs: a restart is needed", spec.name));
  }
  if (spec.model.mmproj != served.model.mmproj || spec.model.uses_mmproj != served.model.uses_mmproj) {
    throw StartupError(fmt::format(
        "models: '{}' cannot change its mmproj file while the server runs: a restart is needed", spec.name));
  }
  if (spec.model.ignore_unknown_keys != served.model.ignore_unknown_keys) {
    throw StartupError(fmt::format(
        "models: '{}' cannot change ignore_unknown_keys while the server runs: a restart is needed", spec.name));
  }
}

}  // namespace

LiveModels::LiveModels(ModelOpener open, std::function<MachineMemory()> measure,
                       std::function<MachineMemory()> measure_host)
    : thread_(std::make_shared<WorkThread>("models", [this] { return sleep_idle(Clock::now()); })),
      loader_(std::move(open), std::move(measure), std::move(measure_host), thread_,
              [this](const RunningModel* model) { note_release(model); }) {}

void LiveModels::stop() {
  loader_.interrupt();
  thread_->stop();
  std::vector<EntryPtr> entries;  // released after their engines have ended
  {
    const std::lock_guard lock(mutex_);
    publish_ = nullptr;
    entries.swap(entries_);
  }
  loader_.stop_all();
}

void LiveModels::start(std::vector<HostedModelSpec> specs, const EngineOptions& general,
                       const std::function<bool()>& interrupted) {
  auto opened = loader_.open_all(specs, general);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto entry = std::make_shared<HostedModel>(specs[i]);
    std::optional<BroughtUp> loaded;
    if (opened[i]) {
      name_failures(specs[i], [&] { loaded = loader_.bring_up(specs[i], std::move(opened[i]), interrupted); });
    }
    const std::lock_guard lock(mutex_);
    if (loaded) entry->put(*std::move(loaded));
    entries_.push_back(entry);
  }
  const std::lock_guard lock(mutex_);
  general_ = general;
}

void LiveModels::check(std::vector<HostedModelSpec> specs, const EngineOptions& general) const {
  loader_.check(std::move(specs), general);
}

void LiveModels::publish_to(Publish publish) {
  const std::lock_guard lock(mutex_);
  publish_ = std::move(publish);
  this->publish();
}

LiveModels::EntryPtr LiveModels::find(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const EntryPtr& entry) { return entry->spec.name == name; });
  return found == entries_.end() ? nullptr : *found;
}

bool LiveModels::is_taken(const HostedModelSpec& spec, const HostedModel* but) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const EntryPtr& entry) { return entry.get() != but && share_a_name(spec, entry->spec); });
}

void LiveModels::publish() {
  if (!publish_) return;
  std::vector<TableEntry> rows;
  for (const EntryPtr& entry : entries_)
    rows.push_back(entry->row());
  publish_(ModelTable(std::move(rows)));
}

std::vector<ModelReport> LiveModels::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelReport> reports;
  for (const EntryPtr& entry : entries_)
    reports.push_back(entry->report());
  return reports;
}

void LiveModels::begin_load(const EntryPtr& entry, ModelState state) {
  entry->state = state;
  entry->loading = std::stop_source();
  entry->begun = false;
  entry->makes_room = nullptr;
  publish();
  thread_->post([this, entry, stop = entry->loading.get_token()] { load_now(entry, stop); });
}

// Running requests finish on the old model; its last holder, often a session, hands it to the loader.
void LiveModels::begin_drain(HostedModel& entry, After after, ModelOutcome& outcome) {
  entry.draining = entry.running.get();
  entry.after = after;
  entry.state = ModelState::kDraining;
  entry.served.reset();
  outcome.dropped.push_back(std::move(entry.running));
  publish();
}

void LiveModels::load(const ModelEntry& model, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  HostedModelSpec spec = spec_of(model, general_);
  EntryPtr entry = find(spec.name);
  const bool same = entry && (spec.model.path.empty() || spec.model.path == entry->spec.model.path);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (entry && same && entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry && same && entry->is_loading()) return entry->callers.push_back(std::move(done));
  if (entry && same && !model.preload && entry->state == ModelState::kSleeping) return outcome.report(std::move(done));
  if (entry && (entry->state == ModelState::kReady && !entry->replacing)) {
    return refuse(wrong_state(spec.name, entry->state, "another file takes its place by /admin/models/replace"));
  }
  if (entry && entry->is_busy()) return refuse(under_way(spec.name));
  if (!entry && spec.model.path.empty()) return refuse(no_such_model(spec.name));
  if (!same && is_taken(spec, entry.get())) {
    return refuse(Error{ErrorKind::kConflict, "Another model has the name or one of the aliases", "model_name_taken",
                        "name", std::nullopt});
  }
  if (const auto twice = repeated_name(spec)) {
    return refuse(Error{ErrorKind::kInvalidRequest, "The model would have the name '" + *twice + "' twice",
                        "model_name_taken", "aliases", std::nullopt});
  }
  if (!entry && entries_.size() >= kMostModels) {
    return refuse(Error{ErrorKind::kConflict, "There are " + std::to_string(kMostModels) + " models already",
                        "too_many_models", "name", std::nullopt});
  }
  spec.is_configured = entry && entry->spec.is_configured;
  if (!entry) {
    entry = std::make_shared<HostedModel>(std::move(spec));
    entries_.push_back(entry);
  } else if (!same) {
    entry->spec = std::move(spec);
  }
  entry->waiting_places = std::make_shared<RequestQueue>(entry->spec.engine.queue);
  if (!model.preload) {
    entry->state = ModelState::kSleeping;
    publish();
    return outcome.report(std::move(done));
  }
  entry->callers.push_back(std::move(done));
  begin_load(entry, ModelState::kLoading);
}

void LiveModels::take_out(const EntryPtr& entry) {
  entry->state = ModelState::kUnloaded;
  for (const EntryPtr& other : entries_) {
    if (canary_name(other->spec.name) == entry->spec.name) other->canary_share = 0.0;
  }
  if (!entry->spec.is_configured) std::erase(entries_, entry);
  publish();
}

void LiveModels::unload(const std::string& name, Done done) {
  give_up(name, After::kUnload, std::move(done));
}

void LiveModels::sleep(const std::string& name, Done done) {
  give_up(name, After::kSleep, std::move(done));
}

void LiveModels::give_up(const std::string& name, After after, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry) return refuse(no_such_model(name));
  if (entry->state == ModelState::kDraining && entry->after == after) return entry->callers.push_back(std::move(done));
  if (entry->canary_share > 0.0) return refuse(has_canary(name));
  const bool loads_for_nobody = entry->is_loading() && entry->waiting.empty();
  if (after == After::kUnload ? entry->can_give_up() : loads_for_nobody) {
    abandon(entry, after, given_up(name), outcome);
    outcome.report(entry->waiting, not_served(name));
  } else if (entry->is_busy()) {
    return refuse(under_way(name));
  } else if (entry->state == ModelState::kReady) {
    begin_drain(*entry, after, outcome);
  } else if (after == After::kUnload) {
    take_out(entry);
  } else if (entry->state == ModelState::kUnloaded) {
    return refuse(wrong_state(name, entry->state, "load it first"));
  }
  if (entry->state == ModelState::kDraining) return entry->callers.push_back(std::move(done));
  outcome.report(std::move(done));
}

// A model that serves meanwhile continues, or drains to be unloaded. The model being loaded becomes `after` once the
// loader has noticed.
void LiveModels::abandon(const EntryPtr& entry, After after, const Error& why, ModelOutcome& outcome) {
  log::info("the load of {} is given up", entry->spec.name);
  entry->loading.request_stop();
  outcome.report(entry->callers, why);
  if (entry->fallback) entry->spec = *std::exchange(entry->fallback, std::nullopt);
  if (std::exchange(entry->replacing, false)) {
    if (after == After::kUnload) begin_drain(*entry, after, outcome);
    return;
  }
  entry->makes_room = nullptr;
  const bool waits = std::exchange(entry->state, ModelState::kDraining) == ModelState::kDraining || entry->begun;
  entry->after = after;
  if (!waits) return after_drain(entry, outcome);
  publish();
}

void LiveModels::abandon_loads() {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : std::vector<EntryPtr>(entries_)) {
    if (entry->can_give_up() && entry->waiting.empty()) abandon(entry, After::kSleep, shutting_down(), outcome);
  }
}

void LiveModels::wake(const std::string& name, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry) return refuse(no_such_model(name));
  if (entry->state == ModelState::kUnloaded) return refuse(wrong_state(name, entry->state, "load it first"));
  if (entry->state == ModelState::kDraining && entry->after == After::kUnload) return refuse(under_way(name));
  if (entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry->state == ModelState::kDraining) return entry->waiting.push_back(std::move(done));
  entry->callers.push_back(std::move(done));
  if (!entry->is_loading()) begin_load(entry, ModelState::kWaking);
}

void LiveModels::replace(const std::string& name, const std::filesystem::path& path, bool in_place, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry) return refuse(no_such_model(name));
  if (entry->state == ModelState::kUnloaded) return refuse(wrong_state(name, entry->state, "load it with the path"));
  if (entry->is_busy()) return refuse(under_way(name));
  if (entry->canary_share > 0.0) return refuse(has_canary(name));
  HostedModelSpec spec = entry->spec;
  spec.model.path = path;
  entry->callers.push_back(std::move(done));
  if (entry->state != ModelState::kReady) {
    entry->fallback = std::exchange(entry->spec, std::move(spec));
    return begin_load(entry, ModelState::kLoading);
  }
  entry->replacing = true;
  entry->loading = std::stop_source();
  thread_->post([this, entry, spec = std::move(spec), in_place, stop = entry->loading.get_token()] {
    if (in_place) return check_in_place(entry, spec, stop);
    replace_beside(entry, spec, stop);
  });
}

void LiveModels::wake_for(const std::string& name, const std::string& key_name, std::int64_t body_bytes, Done done) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  const bool leaves = entry && entry->state == ModelState::kDraining && entry->after == After::kUnload;
  if (!entry || leaves || entry->state == ModelState::kUnloaded) return refuse(not_served(name));
  if (entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry->failed_lately(Clock::now())) return refuse(entry->not_loaded());
  auto ticket = entry->waiting_places->reserve(key_name, body_bytes);
  if (!ticket) return refuse(ticket.error());
  auto waiting =
      std::make_shared<WaitingRequest>(WaitingRequest{entry->waiting_places, *std::move(ticket), std::move(done)});
  entry->waiting.push_back([waiting](std::optional<Error> error) { waiting->done(std::move(error)); });
  if (entry->state == ModelState::kSleeping || entry->state == ModelState::kFailed) {
    log::info("a request wakes {}", name);
    begin_load(entry, ModelState::kWaking);
  }
}

std::optional<std::chrono::milliseconds> LiveModels::longest_wait(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : entries_) {
    const double seconds = entry->spec.engine.queue.max_queue_time_s;
    if (!answers_to(entry->spec, name) || seconds <= 0.0) continue;
    return std::chrono::milliseconds(static_cast<std::int64_t>(1000.0 * seconds));
  }
  return std::nullopt;
}

// If several models are ready and another one sleeps, it looks regularly, to know which was used least recently.
std::optional<Clock::time_point> LiveModels::sleep_idle(Clock::time_point now) {
  ModelOutcome outcome;
  const std::lock_guard lock(mutex_);
  const auto num_in = [&](ModelState state) {
    return std::ranges::count_if(entries_, [&](const EntryPtr& entry) { return entry->state == state; });
  };
  std::optional<Clock::time_point> next;
  if (num_in(ModelState::kReady) > 1 && num_in(ModelState::kSleeping) > 0) next = now + kLongestLook;
  for (const EntryPtr& entry : entries_) {
    const auto limit = entry->spec.sleep_after;
    if (entry->state != ModelState::kReady || entry->replacing) continue;
    entry->note_work(now);
    if (limit.count() == 0 || entry->canary_share > 0.0) continue;
    if (now - entry->active_at >= limit) {
      log::info("{} had nothing to do for {} s and goes to sleep", entry->spec.name, limit.count() / 1000);
      begin_drain(*entry, After::kSleep, outcome);
      continue;
    }
    const auto look = now + std::clamp(limit / 4, kShortestLook, kLongestLook);
    next = next ? std::min(*next, look) : look;
  }
  return next;
}

void LiveModels::reconfigure(const std::vector<HostedModelSpec>& specs, const EngineOptions& general) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<EntryPtr, std::shared_ptr<ServedModel>>> matched;
  std::vector<HostedModelSpec> named;  // specs with their present adapters
  for (const HostedModelSpec& spec : specs) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const EntryPtr& entry) {
      return entry->spec.name == spec.name || (entry->spec.is_only && spec.is_only);
    });
    if (found == entries_.end()) {
      throw StartupError(fmt::format("models: '{}' is new: {} and a path first", spec.name, advice(spec.name, "load")));
    }
    const HostedModel& entry = **found;
    if (entry.replacing || entry.state == ModelState::kDraining || entry.state == ModelState::kLoading) {
      throw StartupError(fmt::format("models: '{}' is changing: reload again after it", spec.name));
    }
    check_unchanged(spec, entry.spec);
    matched.emplace_back(*found, entry.running ? entry.running->describe(spec) : nullptr);
    named.push_back(spec);
    named.back().adapters = entry.spec.adapters;
  }
  check_names(named);
  for (const EntryPtr& entry : entries_) {
    const bool kept =
        std::any_of(matched.begin(), matched.end(), [&](const auto& each) { return each.first == entry; });
    if (!kept && entry->spec.is_configured && entry->state != ModelState::kUnloaded) {
      throw StartupError(fmt::format("models: '{}' is served, and missing from the configuration: {} first",
                                     entry->spec.name, advice(entry->spec.name, "unload")));
    }
    for (const HostedModelSpec& spec : specs) {
      if (kept || !share_a_name(spec, entry->spec)) continue;
      throw StartupError(fmt::format("models: '{}' would share a name with '{}'", spec.name, entry->spec.name));
    }
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto& [entry, served] = matched[i];
    entry->take_over(specs[i], served);
  }
  general_ = general;
  publish();
  thread_->post([] {});  // times may have changed: the thread computes its next wake-up again
}

}  // namespace quire
