// LiveModels: the models of one process, from loading to destruction: their names, states and changes, and the requests
// that wait for them. Any thread, except start() and stop(): one thread at a time. Slow work runs on the thread
// `models`, one task at a time. Invariants: the published table never names a model twice; a model is destroyed on that
// thread, after its last request; every operation calls its Done exactly once, unless the process ends first.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "server/api/common/model_table.h"
#include "server/models/hosted_model.h"
#include "server/models/model_loader.h"
#include "server/models/model_report.h"
#include "server/models/work_thread.h"

namespace quire {

class LiveModels {
 public:
  using Publish = std::function<void(const ModelTable& table)>;
  // Called when an operation ends, with the error if it failed; on the thread `models`, or before the operation's
  // function returns. Must not block.
  using Done = ModelDone;

  // `measure` returns the memory for models on their device, `measure_host` the machine's memory left beside a GPU.
  LiveModels(
      ModelOpener open, std::function<MachineMemory()> measure,
      std::function<MachineMemory()> measure_host = [] { return machine_memory(); });
  ~LiveModels() { stop(); }
  LiveModels(const LiveModels&) = delete;
  LiveModels& operator=(const LiveModels&) = delete;

  // Plans the memory of all models and loads those to be preloaded. kv_cache.memory in `general` is the total of their
  // KV pools (0: chosen by the free memory); later models start from `general`. Throws StartupError, and Interrupted
  // once `interrupted` returns true.
  void start(std::vector<HostedModelSpec> specs, const EngineOptions& general,
             const std::function<bool()>& interrupted);
  // Throws StartupError like start() before it loads weights, and loads none.
  void check(std::vector<HostedModelSpec> specs, const EngineOptions& general) const;
  // Calls `publish` with the table now and after each change.
  void publish_to(Publish publish);
  // Ends all engines' threads: afterwards no event is sent and no Done is called.
  void stop();

  // Admin operations, by model name. Each is done at once if the model is already in that state. Errors: 404 for an
  // unknown name, 409 if another operation on the model is under way or its state forbids this one, 400 if its files
  // are not a model, 507 if it does not fit in memory. load(): adds the model; without `preload` its first request
  // loads it.
  void load(const ModelEntry& model, Done done);
  // Removes it once its requests have ended. A load that is under way is cancelled: its caller gets 409, and this
  // operation is done when the memory of that load is released.
  void unload(const std::string& name, Done done);
  // Releases its memory once its requests have ended. A load that no request waits for is cancelled as well.
  void sleep(const std::string& name, Done done);
  void wake(const std::string& name, Done done);
  // Loads another file under the same name. New requests go to it once it is loaded; running ones finish on the old
  // one. `in_place`: unloads the old one first, while requests wait; for machines without memory for both.
  void replace(const std::string& name, const std::filesystem::path& path, bool in_place, Done done);

  // Sets a canary: the model's next file, loaded beside it under canary_name(), gets `share` of the model's
  // conversations; a later call changes the share (without `path`). 0 unloads it again, 1 makes it the model. Errors:
  // like replace(); 409 "model_busy" if the model does not serve or the canary is another file.
  void split(const std::string& name, const std::filesystem::path& path, double share, Done done);

  // Loads an adapter of a serving model (empty: the first) for later requests that name it; with `in_place` it replaces
  // the adapter of its name. Errors: 400 for a name in use or a file that is no adapter of the model, 403 if the model
  // takes no updates, 507 if the adapters in use leave no room.
  void load_adapter(const std::string& model, const AdapterPath& adapter, bool in_place, Done done);
  // Running requests keep the adapter. Errors: 404.
  void unload_adapter(const std::string& name, Done done);

  // Wakes the sleeping model of a request with this key and calls `done` when it is ready. Requests that wait here have
  // the same limits as the model's queue. Errors: 404, the queue's refusals, 503 "model_failed".
  void wake_for(const std::string& name, const std::string& key_name, std::int64_t body_bytes, Done done);
  // Longest time that a request may wait for its model; nullopt: no limit.
  std::optional<std::chrono::milliseconds> longest_wait(const std::string& name) const;

  // Cancels, during a drain, the loads that no request waits for. Their callers get 503.
  void abandon_loads();

  std::vector<ModelReport> report() const;

  // Puts models to sleep that had no work for their sleep_after; returns when to call it again.
  std::optional<Clock::time_point> sleep_idle(Clock::time_point now);
  // Applies a reloaded configuration's names, templates, limits and times, all or none. Throws StartupError if a model
  // was added, removed or moved to another file: these need load(), unload() or replace().
  void reconfigure(const std::vector<HostedModelSpec>& specs, const EngineOptions& general);

 private:
  using After = HostedModel::After;
  using EntryPtr = std::shared_ptr<HostedModel>;

  // Common part of sleep() and unload().
  void give_up(const std::string& name, After after, Done done);

  // Each requires mutex_.
  EntryPtr find(const std::string& name) const;
  bool is_taken(const HostedModelSpec& spec, const HostedModel* but) const;
  void begin_load(const EntryPtr& entry, ModelState state);
  void begin_drain(HostedModel& entry, After after, ModelOutcome& outcome);
  void abandon(const EntryPtr& entry, After after, const Error& why, ModelOutcome& outcome);
  void note_failure(const EntryPtr& entry, const Error& error, ModelOutcome& outcome);
  void after_drain(const EntryPtr& entry, ModelOutcome& outcome);
  bool take_room(HostedModel& entry, ModelOutcome& outcome);
  void take_out(const EntryPtr& entry);
  std::optional<Error> adapter_refusal(const EntryPtr& entry, const std::string& name, bool in_place) const;
  void begin_canary(const HostedModel& entry, const std::filesystem::path& path, double share, Done done);
  void drop_canary(const EntryPtr& canary, Done done, ModelOutcome& outcome);
  void promote(HostedModel& entry, const EntryPtr& canary, ModelOutcome& outcome);
  void publish();

  // Runs on the thread `models`, without the mutex.
  void load_now(const EntryPtr& entry, const std::stop_token& stop);
  void replace_beside(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop);
  void check_in_place(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop);
  void note_release(const RunningModel* model);
  bool fits_without_idle(const HostedModelSpec& spec);
  void load_adapter_now(const EntryPtr& entry, const AdapterPath& adapter, bool in_place, const Done& done);

  mutable std::mutex mutex_;
  Publish publish_;
  EngineOptions general_;
  std::vector<EntryPtr> entries_;
  std::shared_ptr<WorkThread> thread_;
  ModelLoader loader_;
};

}  // namespace quire
