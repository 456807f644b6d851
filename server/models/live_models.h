// LiveModels: the models of one process from their files to their ends: what each may take of the memory, whether it is
// loaded, and who waits for it. Any thread, except start() and stop(): One thread at a time. Whatever takes long runs
// on the thread `models`, one thing after another. Invariants: the published table never names a model twice; a model
// is destroyed there, after its last request; every operation tells its Done exactly once, unless the process ends
// first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "server/api/common/model_table.h"
#include "server/models/memory_ledger.h"
#include "server/models/model_report.h"
#include "server/models/running_model.h"
#include "server/models/work_thread.h"

namespace quire {

class LiveModels {
 public:
  using Publish = std::function<void(const ModelTable& table)>;
  // How an operation ended: nothing, or the error. Called on the thread `models`, or at once; must not block.
  using Done = std::function<void(std::optional<Error> error)>;

  LiveModels(ModelOpener open, std::function<MachineMemory()> measure);
  ~LiveModels() { stop(); }
  LiveModels(const LiveModels&) = delete;
  LiveModels& operator=(const LiveModels&) = delete;

  // Plans the memory of all, kv_cache.memory of `general` being that of all their KV pools (0: by what is left), and
  // loads those to be preloaded. `general` is what models that come later begin from. Throws StartupError, and
  // Interrupted once `interrupted` says so.
  void start(std::vector<HostedModelSpec> specs, const EngineOptions& general,
             const std::function<bool()>& interrupted);
  // Tells of the table now, and from now on whenever it changed.
  void publish_to(Publish publish);
  // Ends all engines' threads: nothing is sent or reported any more.
  void stop();

  // What an admin may ask for, by name. All of them are done at once where there is nothing left to do. Errors: 404 for
  // a name that is not there, 409 where something else is under way with it or its state forbids it, 400 where its
  // files are no model, 507 where it does not fit.
  // Takes it into service, or back; without `preload` its first request loads it.
  void load(const ModelEntry& model, Done done);
  // Takes it out of service, once its requests have ended. A load that is under way is given up: its caller gets
  // 409, and this is done once its memory is back.
  void unload(const std::string& name, Done done);
  // Gives its memory back, once its requests have ended. A load that no request waits for is given up as well.
  void sleep(const std::string& name, Done done);
  void wake(const std::string& name, Done done);
  // Another file under the same name. New requests go to the new one once it is loaded, those that run end on the old
  // one. `in_place`: the old one goes first, and requests wait meanwhile; for where there is no room for both.
  void replace(const std::string& name, const std::filesystem::path& path, bool in_place, Done done);

  // A canary: the model's next file, loaded beside it under canary_name(), gets `share` of the model's conversations; a
  // later call changes the share (without `path`). 0 unloads it again, 1 makes it the model. Errors: as replace(), 409
  // "model_busy" where the model does not serve or the canary is another file.
  void split(const std::string& name, const std::filesystem::path& path, double share, Done done);

  // For a request of this key that found its model asleep: wakes it and tells when it may be asked. What waits so is
  // bounded as the model's queue is. Errors: 404, the queue's refusals, 503 "model_failed".
  void wake_for(const std::string& name, const std::string& key_name, std::int64_t body_bytes, Done done);
  // How long a request may wait so; nothing: as long as it takes.
  std::optional<std::chrono::milliseconds> longest_wait(const std::string& name) const;

  // The server drains: gives up the loads that no request waits for. Their callers get 503.
  void abandon_loads();

  std::vector<ModelReport> report() const;

  // Puts those to sleep that had no work for as long as their specs say; returns when to look again.
  std::optional<Clock::time_point> sleep_idle(Clock::time_point now);
  // The configuration was read again: names, templates, bounds and times are taken over, all or none. Throws
  // StartupError where a model was added, removed or moved to another file: that takes an operation.
  void reconfigure(const std::vector<HostedModelSpec>& specs, const EngineOptions& general);

 private:
  // What a model that drains becomes.
  enum class After { kSleep, kUnload, kLoad };

  struct Entry {
    HostedModelSpec spec;
    ModelState state = ModelState::kSleeping;
    std::int64_t created = 0;
    std::string failure;
    std::optional<Clock::time_point> failed_at;
    std::shared_ptr<RunningModel> running;      // null: not ready
    std::shared_ptr<const ServedModel> served;  // the same
    std::optional<ModelInfo> info;
    std::int64_t max_model_len = 0;
    std::uint64_t promised = 0;             // bytes, while it runs
    std::stop_source loading;               // of the load or replacement that is under way
    bool begun = false;                     // the load has the thread `models`, it does not wait for it
    bool replacing = false;                 // the next one is being loaded beside it
    double canary_share = 0.0;              // of its conversations, that its canary gets
    const RunningModel* leaving = nullptr;  // who drains; only ever compared
    After after = After::kSleep;
    std::optional<HostedModelSpec> fallback;  // what it was before a replacement in place
    std::vector<Done> told;                   // operations under way
    std::vector<Done> waiting;                // requests, and who wakes a model that drains: for it to be ready
    std::shared_ptr<RequestQueue> room;       // counts the requests among them
    std::uint64_t last_steps = 0;
    Clock::time_point active_at{};

    bool is_busy() const;      // something is under way that nothing else may cross
    bool can_give_up() const;  // ... which is a load, or leads to one
  };
  using EntryPtr = std::shared_ptr<Entry>;
  // What was loaded, before it is put into its entry.
  struct Loaded {
    std::shared_ptr<RunningModel> running;
    std::shared_ptr<const ServedModel> served;
    std::uint64_t promised = 0;
  };
  // Reports to send, and objects to drop, once the mutex is free.
  struct Outcome {
    std::vector<std::pair<Done, std::optional<Error>>> told;
    std::vector<std::shared_ptr<RunningModel>> dropped;
    ~Outcome();
    void tell(Done done, std::optional<Error> error = std::nullopt);
    void tell(std::vector<Done>& all, const std::optional<Error>& error = std::nullopt);
  };

  // A model without holders, and the memory that was promised to it.
  struct Ended {
    std::unique_ptr<RunningModel> model;
    std::shared_ptr<const std::uint64_t> promise;
  };

  // sleep() and unload().
  void give_up(const std::string& name, After after, Done done);

  // Each requires mutex_.
  EntryPtr find(const std::string& name) const;
  bool is_taken(const HostedModelSpec& spec, const Entry* but) const;
  static Error not_loaded(const Entry& entry);  // for requests
  void begin_load(const EntryPtr& entry, ModelState state);
  void begin_drain(Entry& entry, After after, Outcome& outcome);
  void abandon(const EntryPtr& entry, After after, const Error& why, Outcome& outcome);
  void put(Entry& entry, Loaded loaded);
  void note_failure(const EntryPtr& entry, const Error& error, Outcome& outcome);
  void after_drain(const EntryPtr& entry, Outcome& outcome);
  void take_out(const EntryPtr& entry);
  void take_over(Entry& entry, const HostedModelSpec& spec, std::shared_ptr<ServedModel> served);
  void begin_canary(const Entry& entry, const std::filesystem::path& path, double share, Done done);
  void drop_canary(const EntryPtr& canary, Done done, Outcome& outcome);
  void promote(Entry& entry, const EntryPtr& canary, Outcome& outcome);
  void publish();
  TableEntry describe(const Entry& entry) const;

  // On the thread `models`, without the mutex.
  void load_now(const EntryPtr& entry, const std::stop_token& stop);
  void replace_beside(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop);
  void check_in_place(const EntryPtr& entry, HostedModelSpec spec, const std::stop_token& stop);
  void bury(Ended& ended);
  // The error where it cannot be loaded; nothing at all where it was given up meanwhile, or the process ends.
  std::optional<Result<Loaded>> try_load(const HostedModelSpec& spec, const std::stop_token& stop);
  Loaded bring_up(const HostedModelSpec& spec, std::unique_ptr<OpenedModel> opened,
                  const std::function<bool()>& interrupted);
  void plan_start(std::vector<HostedModelSpec>& specs, std::int64_t kv_budget,
                  const std::vector<std::unique_ptr<OpenedModel>>& opened) const;

  const ModelOpener open_;
  MemoryLedger ledger_;
  mutable std::mutex mutex_;
  Publish publish_;
  EngineOptions general_;
  std::vector<EntryPtr> entries_;
  std::vector<std::weak_ptr<RunningModel>> alive_;  // loaded ones that may still have holders
  std::atomic<bool> ending_{false};
  std::shared_ptr<WorkThread> thread_;
};

}  // namespace quire
