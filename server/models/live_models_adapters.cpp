// LiveModels: loading and unloading adapters of serving models.
#include <algorithm>

#include "core/base/log.h"
#include "server/models/live_models.h"

namespace quire {

namespace {

Error adapter_error(ErrorKind kind, std::string message, const char* code) {
  return Error{kind, std::move(message), code, "lora_name", std::nullopt};
}

auto find_path(HostedModelSpec& spec, const std::string& name) {
  return std::ranges::find(spec.adapters, name, &AdapterPath::name);
}

}  // namespace

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
  Outcome outcome;
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
  Outcome outcome;
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
  Outcome outcome;
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

}  // namespace quire
