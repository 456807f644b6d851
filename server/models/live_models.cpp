#include "server/models/live_models.h"

#include <algorithm>
#include <ctime>

#include "core/base/log.h"
#include "server/api/common/canary.h"
#include "server/api/common/errors.h"

namespace quire {

namespace {

// A request for a model that failed to load tries again, but not before this.
constexpr std::chrono::seconds kRetryAfter{10};
constexpr std::chrono::milliseconds kLongestLook{1000};
constexpr std::chrono::seconds kUnusedAfter{10};  // time after which an unused model counts as idle
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

bool is_loading(ModelState state) {
  return state == ModelState::kLoading || state == ModelState::kWaking;
}

}  // namespace

LiveModels::Outcome::~Outcome() {
  for (const auto& [done, error] : reports)
    done(error);
}

void LiveModels::Outcome::report(Done done, std::optional<Error> error) {
  reports.emplace_back(std::move(done), std::move(error));
}

void LiveModels::Outcome::report(std::vector<Done>& all, const std::optional<Error>& error) {
  for (Done& done : all)
    report(std::move(done), error);
  all.clear();
}

bool LiveModels::Entry::is_busy() const {
  return replacing || is_loading(state) || state == ModelState::kDraining;
}

bool LiveModels::Entry::can_give_up() const {
  return replacing || is_loading(state) || (state == ModelState::kDraining && after == After::kLoad);
}

Error LiveModels::not_loaded(const Entry& entry) {
  return Error{ErrorKind::kUnavailable, "The model '" + entry.spec.name + "' could not be loaded", "model_failed",
               "model", kRetryAfter};
}

LiveModels::LiveModels(ModelOpener open, std::function<MachineMemory()> measure,
                       std::function<MachineMemory()> measure_host)
    : open_(std::move(open)),
      ledger_(std::move(measure)),
      host_ledger_(std::move(measure_host)),
      thread_(std::make_shared<WorkThread>("models", [this] { return sleep_idle(Clock::now()); })) {}

void LiveModels::stop() {
  ending_ = true;
  thread_->stop();
  std::vector<std::shared_ptr<RunningModel>> alive;
  std::vector<EntryPtr> entries;
  {
    const std::lock_guard lock(mutex_);
    publish_ = nullptr;
    for (const auto& each : alive_) {
      if (auto model = each.lock()) alive.push_back(std::move(model));
    }
    entries.swap(entries_);
  }
  for (const auto& model : alive)
    model->stop();
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

bool LiveModels::is_taken(const HostedModelSpec& spec, const Entry* but) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const EntryPtr& entry) { return entry.get() != but && share_a_name(spec, entry->spec); });
}

TableEntry LiveModels::describe(const Entry& entry) const {
  TableEntry row;
  row.name = entry.spec.name;
  row.aliases = entry.spec.aliases;
  for (const AdapterPath& adapter : entry.spec.adapters) {
    if (!entry.spec.is_canary) row.adapters.push_back({adapter.name, adapter.path.filename().string()});
  }
  row.created = entry.created;
  row.state = entry.state;
  row.failure = entry.failure;
  row.info = entry.info;
  row.max_model_len = entry.max_model_len;
  row.served = entry.served;
  row.running = entry.running;
  row.canary_share = entry.canary_share;
  return row;
}

void LiveModels::publish() {
  if (!publish_) return;
  std::vector<TableEntry> rows;
  for (const EntryPtr& entry : entries_)
    rows.push_back(describe(*entry));
  publish_(ModelTable(std::move(rows)));
}

std::vector<ModelReport> LiveModels::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelReport> reports;
  for (const EntryPtr& entry : entries_) {
    reports.push_back({describe(*entry), entry->spec.model.path, entry->spec.adapters,
                       entry->running ? entry->promised : 0, entry->spec.sleep_after, entry->replacing,
                       entry->spec.is_configured});
  }
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

// Running requests finish on the old model; its last holder, often a session, hands it to bury().
void LiveModels::begin_drain(Entry& entry, After after, Outcome& outcome) {
  entry.draining = entry.running.get();
  entry.after = after;
  entry.state = ModelState::kDraining;
  entry.served.reset();
  outcome.dropped.push_back(std::move(entry.running));
  publish();
}

void LiveModels::put(Entry& entry, Loaded loaded) {
  entry.running = std::move(loaded.running);
  entry.served = std::move(loaded.served);
  entry.promised = loaded.promised;
  entry.promised_on_host = loaded.promised_on_host;
  entry.info = entry.served->info;
  entry.max_model_len = entry.served->max_model_len;
  entry.state = ModelState::kReady;
  entry.failure.clear();
  entry.failed_at.reset();
  entry.fallback.reset();
  entry.replacing = false;
  entry.last_steps = 0;
  entry.active_at = Clock::now();
}

void LiveModels::load(const ModelEntry& model, Done done) {
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  HostedModelSpec spec = spec_of(model, general_);
  EntryPtr entry = find(spec.name);
  const bool same = entry && (spec.model.path.empty() || spec.model.path == entry->spec.model.path);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (entry && same && entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry && same && is_loading(entry->state)) return entry->callers.push_back(std::move(done));
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
  if (!entry) {
    entry = std::make_shared<Entry>();
    entry->created = static_cast<std::int64_t>(std::time(nullptr));
    entries_.push_back(entry);
    spec.is_configured = false;
  } else {
    spec.is_configured = entry->spec.is_configured;
  }
  if (!same) entry->spec = std::move(spec);
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
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry) return refuse(no_such_model(name));
  if (entry->state == ModelState::kDraining && entry->after == after) return entry->callers.push_back(std::move(done));
  if (entry->canary_share > 0.0) return refuse(has_canary(name));
  const bool loads_for_nobody = is_loading(entry->state) && entry->waiting.empty();
  if (after == After::kUnload ? entry->can_give_up() : loads_for_nobody) {
    abandon(entry, after, given_up(name), outcome);
    outcome.report(entry->waiting, no_such_model(name));
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
void LiveModels::abandon(const EntryPtr& entry, After after, const Error& why, Outcome& outcome) {
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
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : std::vector<EntryPtr>(entries_)) {
    if (entry->can_give_up() && entry->waiting.empty()) abandon(entry, After::kSleep, shutting_down(), outcome);
  }
}

void LiveModels::wake(const std::string& name, Done done) {
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  if (!entry) return refuse(no_such_model(name));
  if (entry->state == ModelState::kUnloaded) return refuse(wrong_state(name, entry->state, "load it first"));
  if (entry->state == ModelState::kDraining && entry->after == After::kUnload) return refuse(under_way(name));
  if (entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry->state == ModelState::kDraining) return entry->waiting.push_back(std::move(done));
  entry->callers.push_back(std::move(done));
  if (!is_loading(entry->state)) begin_load(entry, ModelState::kWaking);
}

void LiveModels::replace(const std::string& name, const std::filesystem::path& path, bool in_place, Done done) {
  Outcome outcome;
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
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  const EntryPtr entry = find(name);
  const auto refuse = [&](Error error) { outcome.report(std::move(done), std::move(error)); };
  const bool leaves = entry && entry->state == ModelState::kDraining && entry->after == After::kUnload;
  if (!entry || leaves || entry->state == ModelState::kUnloaded) return refuse(no_such_model(name));
  if (entry->state == ModelState::kReady) return outcome.report(std::move(done));
  if (entry->state == ModelState::kFailed && Clock::now() - *entry->failed_at < kRetryAfter) {
    return refuse(not_loaded(*entry));
  }
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

void LiveModels::note_work(Entry& entry, Clock::time_point now) {
  const EngineStats stats = entry.running->stats();
  if (stats.num_steps != entry.last_steps || stats.num_running > 0 || stats.num_waiting > 0) entry.active_at = now;
  entry.last_steps = stats.num_steps;
}

// Returns whether the model may release its memory: it is unused, and served the request it was loaded for.
bool LiveModels::is_idle(Entry& entry, Clock::time_point now) {
  if (entry.state != ModelState::kReady || entry.replacing || entry.spec.is_canary || entry.canary_share > 0.0)
    return false;
  note_work(entry, now);
  const EngineStats stats = entry.running->stats();
  const bool has_served = stats.num_steps > 0 || now - entry.active_at >= kUnusedAfter;
  return has_served && stats.num_running == 0 && stats.num_waiting == 0;
}

// If several models are ready and another one sleeps, it looks regularly, to know which was used least recently.
std::optional<Clock::time_point> LiveModels::sleep_idle(Clock::time_point now) {
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  const auto num_in = [&](ModelState state) {
    return std::ranges::count_if(entries_, [&](const EntryPtr& entry) { return entry->state == state; });
  };
  std::optional<Clock::time_point> next;
  if (num_in(ModelState::kReady) > 1 && num_in(ModelState::kSleeping) > 0) next = now + kLongestLook;
  for (const EntryPtr& entry : entries_) {
    const auto limit = entry->spec.sleep_after;
    if (entry->state != ModelState::kReady || entry->replacing) continue;
    note_work(*entry, now);
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

}  // namespace quire
