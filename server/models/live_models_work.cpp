#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <ctime>

#include "core/base/log.h"
#include "server/models/live_models.h"

namespace quire {

namespace {

Error load_refusal(const std::string& name, ErrorKind kind, const char* code, const std::string& why) {
  return Error{kind, "The model '" + name + "' was not loaded: " + why, code, "", std::nullopt};
}

// Runs `work` and returns its exception as an admin's error; nothing if it succeeded. Interrupted passes through.
template <class Work>
std::optional<Error> refused_by(const std::string& name, const Work& work) {
  try {
    work();
    return std::nullopt;
  } catch (const MemoryShortage& error) {
    return load_refusal(name, ErrorKind::kNoMemory, "insufficient_memory", error.what());
  } catch (const std::bad_alloc&) {
    return load_refusal(name, ErrorKind::kNoMemory, "insufficient_memory", "the system gave no memory");
  } catch (const StartupError& error) {
    return load_refusal(name, ErrorKind::kInvalidRequest, "invalid_model", error.what());
  } catch (const std::exception& error) {
    return load_refusal(name, ErrorKind::kInternal, "model_load_failed", error.what());
  }
}

std::string advice(const std::string& name, const char* operation) {
  return fmt::format("POST /admin/models/{} with {{\"name\": \"{}\"}}", operation, name);
}

// A share was planned before the model's needs were known.
KvCacheOptions pool_of(const HostedModelSpec& spec, const MemoryNeeds& needs) {
  KvCacheOptions pool = spec.engine.kv_cache;
  const bool is_share = !spec.is_only && spec.kv_memory == 0 && pool.memory > 0;
  if (is_share) pool.memory = useful_kv_bytes(needs, pool.block_size, pool.memory);
  return pool;
}

bool same_engine(const HostedModelSpec& a, const HostedModelSpec& b) {
  return a.engine.scheduler.max_model_len == b.engine.scheduler.max_model_len &&
         a.engine.scheduler.max_num_seqs == b.engine.scheduler.max_num_seqs &&
         a.engine.kv_cache.dtype == b.engine.kv_cache.dtype && a.kv_memory == b.kv_memory && a.kv_share == b.kv_share;
}

// Throws StartupError if two models share a name.
void check_names(const std::vector<HostedModelSpec>& specs) {
  for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
    if (const auto twice = repeated_name(*spec)) {
      throw StartupError(fmt::format("model '{}': the name '{}' is given twice, as a name, an alias or an adapter",
                                     spec->name, *twice));
    }
    if (std::any_of(specs.begin(), spec, [&](const HostedModelSpec& other) { return share_a_name(other, *spec); })) {
      throw StartupError(
          fmt::format("models: the name '{}', or one of its aliases or adapters, belongs to two", spec->name));
    }
  }
}

// With several models, the error names the one refused.
void name_failures(const HostedModelSpec& spec, const std::function<void()>& work) {
  try {
    work();
  } catch (const StartupError& error) {
    if (spec.is_only) throw;
    throw StartupError(fmt::format("model '{}': {}", spec.name, error.what()));
  }
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

MachineMemory less(MachineMemory memory, std::uint64_t promised) {
  memory.available -= std::min(memory.available, promised);
  return memory;
}

}  // namespace

std::vector<std::unique_ptr<OpenedModel>> LiveModels::open_all(std::vector<HostedModelSpec>& specs,
                                                               const EngineOptions& general) const {
  check_names(specs);
  std::vector<std::unique_ptr<OpenedModel>> opened;
  for (const HostedModelSpec& spec : specs) {
    if (!spec.preload && !std::filesystem::exists(spec.model.path)) {
      throw StartupError(fmt::format("model '{}': there is no '{}'", spec.name, spec.model.path.string()));
    }
    opened.push_back(spec.preload ? open_(spec) : nullptr);
  }
  plan_start(specs, general.kv_cache.memory, opened);
  return opened;
}

void LiveModels::check(std::vector<HostedModelSpec> specs, const EngineOptions& general) const {
  const auto opened = open_all(specs, general);
  std::uint64_t promised = 0;
  std::uint64_t promised_on_host = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!opened[i]) continue;
    name_failures(specs[i], [&] {
      const MemoryNeeds needs = opened[i]->needs();
      const MemoryPlan plan = plan_memory(needs, pool_of(specs[i], needs), less(ledger_.left(), promised),
                                          less(host_ledger_.left(), promised_on_host));
      promised += plan.total_bytes();
      promised_on_host += needs.host_bytes;
      opened[i]->check();
    });
  }
}

void LiveModels::start(std::vector<HostedModelSpec> specs, const EngineOptions& general,
                       const std::function<bool()>& interrupted) {
  auto opened = open_all(specs, general);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto entry = std::make_shared<Entry>();
    entry->spec = specs[i];
    entry->created = static_cast<std::int64_t>(std::time(nullptr));
    entry->waiting_places = std::make_shared<RequestQueue>(specs[i].engine.queue);
    std::optional<Loaded> loaded;
    if (opened[i]) name_failures(specs[i], [&] { loaded = bring_up(specs[i], std::move(opened[i]), interrupted); });
    const std::lock_guard lock(mutex_);
    if (loaded) put(*entry, *std::move(loaded));
    entries_.push_back(entry);
  }
  const std::lock_guard lock(mutex_);
  general_ = general;
}

// A single model takes the memory it is given, or all that is free.
void LiveModels::plan_start(std::vector<HostedModelSpec>& specs, std::int64_t kv_budget,
                            const std::vector<std::unique_ptr<OpenedModel>>& opened) const {
  if (specs.size() == 1 && specs.front().is_only) return;
  std::vector<KvClaim> claims;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    claims.push_back({specs[i].name, specs[i].kv_memory, specs[i].kv_share, std::nullopt});
    if (opened[i]) claims.back().needs = opened[i]->needs();
  }
  const std::int32_t block_size = specs.empty() ? 1 : specs.front().engine.kv_cache.block_size;
  const std::vector<std::int64_t> sizes = share_kv(claims, kv_budget, block_size, ledger_.left());
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i].engine.kv_cache.memory = sizes[i];
}

LiveModels::Loaded LiveModels::bring_up(const HostedModelSpec& spec, std::unique_ptr<OpenedModel> opened,
                                        const std::function<bool()>& interrupted) {
  const MemoryNeeds needs = opened->needs();
  const MemoryPlan plan = plan_memory(needs, pool_of(spec, needs), ledger_.left(), host_ledger_.left());
  Promises promises{ledger_.promise(plan.total_bytes()), host_ledger_.promise(needs.host_bytes)};
  std::unique_ptr<RunningModel> model = opened->start(plan, interrupted);
  Loaded loaded;
  loaded.promised = plan.total_bytes();
  loaded.promised_on_host = needs.host_bytes;
  // The promises move with the model: the pointer itself may live longer.
  loaded.running = {
      model.release(), [this, thread = thread_, promises = std::move(promises)](RunningModel* ended) mutable {
        // A job must be copyable, but `Ended` is not.
        auto held = std::make_shared<Ended>(Ended{std::unique_ptr<RunningModel>(ended), std::move(promises)});
        thread->post([this, held] { bury(*held); });
      }};
  auto served = loaded.running->describe(spec);
  served->queue = std::shared_ptr<RequestQueue>(loaded.running, &loaded.running->queue());
  loaded.served = std::move(served);
  const std::lock_guard lock(mutex_);
  std::erase_if(alive_, [](const std::weak_ptr<RunningModel>& each) { return each.expired(); });
  alive_.push_back(loaded.running);
  return loaded;
}

std::optional<Result<LiveModels::Loaded>> LiveModels::try_load(const HostedModelSpec& spec,
                                                               const std::stop_token& stop) {
  try {
    Loaded loaded;
    const auto error = refused_by(spec.name, [&] {
      loaded = bring_up(spec, open_(spec), [&] { return ending_.load() || stop.stop_requested(); });
    });
    if (error) return tl::make_unexpected(*error);
    return loaded;
  } catch (const Interrupted&) {
    ::malloc_trim(0);
    return std::nullopt;
  }
}

void LiveModels::load_now(const EntryPtr& entry, const std::stop_token& stop) {
  HostedModelSpec spec;
  {
    const std::lock_guard lock(mutex_);
    if (stop.stop_requested()) return;
    entry->begun = true;
    spec = entry->spec;
  }
  const auto began = Clock::now();
  auto loaded = try_load(spec, stop);
  if (!loaded && !stop.stop_requested()) return;  // the process ends
  const bool lacks_room = loaded && !*loaded && loaded->error().kind == ErrorKind::kNoMemory;
  const bool can_have_room = lacks_room && fits_without_idle(spec);
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) {
    // The loader may have finished before noticing: then the abandonment ends once bury() had the model.
    if (!loaded || !*loaded) return after_drain(entry, outcome);
    entry->draining = (*loaded)->running.get();
    return;
  }
  if (can_have_room && !entry->waiting.empty() && take_room(*entry, outcome)) return;
  if (!*loaded) return note_failure(entry, loaded->error(), outcome);
  log::info("{} is loaded after {} ms", spec.name,
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count());
  put(*entry, **std::move(loaded));
  outcome.report(entry->callers);
  outcome.report(entry->waiting);
  publish();
}

// Throws MemoryShortage if the model would not fit with so much more memory free.
void LiveModels::plan_without(const HostedModelSpec& spec, std::uint64_t promised,
                              std::uint64_t promised_on_host) const {
  const MemoryNeeds needs = open_(spec)->needs();
  plan_memory(needs, pool_of(spec, needs), ledger_.left_without(promised), host_ledger_.left_without(promised_on_host));
}

// Returns whether the model would fit if all idle ones slept.
bool LiveModels::fits_without_idle(const HostedModelSpec& spec) {
  std::uint64_t promised = 0;
  std::uint64_t promised_on_host = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const EntryPtr& entry : entries_) {
      if (!is_idle(*entry, Clock::now())) continue;
      promised += entry->promised;
      promised_on_host += entry->promised_on_host;
    }
  }
  if (promised + promised_on_host == 0) return false;
  return !refused_by(spec.name, [&] { plan_without(spec, promised, promised_on_host); });
}

// Puts the least recently used idle model to sleep; the load begins again once its memory is released.
bool LiveModels::take_room(Entry& entry, Outcome& outcome) {
  const auto now = Clock::now();
  Entry* oldest = nullptr;
  for (const EntryPtr& each : entries_) {
    if (is_idle(*each, now) && (oldest == nullptr || each->active_at < oldest->active_at)) oldest = each.get();
  }
  if (oldest == nullptr) return false;
  log::info("{} goes to sleep, idle for the longest time: {} needs its memory", oldest->spec.name, entry.spec.name);
  begin_drain(*oldest, After::kSleep, outcome);
  entry.makes_room = oldest->draining;
  entry.begun = false;
  return true;
}

void LiveModels::note_failure(const EntryPtr& entry, const Error& error, Outcome& outcome) {
  log::error("{}", error.message);
  outcome.report(entry->callers, error);
  if (entry->fallback) {
    entry->spec = *std::exchange(entry->fallback, std::nullopt);
    log::info("{} goes back to {}", entry->spec.name, entry->spec.model.path.string());
    return begin_load(entry, ModelState::kLoading);
  }
  outcome.report(entry->waiting, not_loaded(*entry));
  entry->state = ModelState::kFailed;
  entry->failure = error.message;
  entry->failed_at = Clock::now();
  if (!entry->spec.is_configured && !entry->info) std::erase(entries_, entry);
  publish();
}

void LiveModels::replace_beside(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop) {
  if (stop.stop_requested()) return;
  auto loaded = try_load(spec, stop);
  if (!loaded) return;
  std::optional<Error> error;
  if (!*loaded) error = loaded->error();
  if (error && error->kind == ErrorKind::kNoMemory) error->message += R"(; "mode": "in_place" needs room for one only)";
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  if (stop.stop_requested()) return;
  outcome.report(entry->callers, error);
  entry->replacing = false;
  if (error) return log::error("{}", error->message);
  log::info("{} is {} now, was {}", spec.name, spec.model.path.string(), entry->spec.model.path.string());
  entry->spec = std::move(spec);
  outcome.dropped.push_back(std::move(entry->running));
  put(*entry, **std::move(loaded));
  publish();
}

// Checks that the new model would load, before the old one is given up.
void LiveModels::check_in_place(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop) {
  if (stop.stop_requested()) return;
  const auto error = refused_by(spec.name, [&] { plan_without(spec, entry->promised, entry->promised_on_host); });
  Outcome outcome;
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

void LiveModels::bury(Ended& ended) {
  const RunningModel* const who = ended.model.get();
  ended.model->stop();
  ended.model.reset();
  ended.promises = {};
  ::malloc_trim(0);  // returns its small allocations to the system too
  Outcome outcome;
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : std::vector<EntryPtr>(entries_)) {
    if (entry->makes_room == who) begin_load(entry, entry->state);
    if (entry->draining != who) continue;
    entry->draining = nullptr;
    after_drain(entry, outcome);
  }
}

void LiveModels::after_drain(const EntryPtr& entry, Outcome& outcome) {
  if (entry->after == After::kLoad) return begin_load(entry, ModelState::kLoading);
  outcome.report(entry->callers);
  if (entry->after == After::kUnload) return take_out(entry);
  log::info("{} sleeps", entry->spec.name);
  entry->state = ModelState::kSleeping;
  if (!entry->waiting.empty()) return begin_load(entry, ModelState::kWaking);
  publish();
}

// Applies the settings that a reload may change, and keeps the memory that the plan gave.
void LiveModels::take_over(Entry& entry, const HostedModelSpec& spec, std::shared_ptr<ServedModel> served) {
  const HostedModelSpec before = std::exchange(entry.spec, spec);
  entry.spec.model.path = before.model.path;
  entry.spec.adapters = before.adapters;
  entry.spec.template_text.reset();  // a later load reads the file again
  entry.spec.engine.kv_cache.memory = before.engine.kv_cache.memory;
  entry.waiting_places->reconfigure(spec.engine.queue, {});
  if (!served) return;
  served->queue = entry.served->queue;
  entry.served = std::move(served);
  entry.running->reconfigure(spec.engine);
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
    const Entry& entry = **found;
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
    take_over(*entry, specs[i], served);
  }
  general_ = general;
  publish();
  thread_->post([] {});  // times may have changed: the thread computes its next wake-up again
}

}  // namespace quire
