// ModelLoader: brings models into memory: opens their files, plans and promises memory, starts engines; and destroys
// them after their last holder. Any thread; models are destroyed on the thread `models`. It knows no states, names in
// use or requests. Invariant: a model's memory is unpromised before its release is reported.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "core/base/result.h"
#include "server/models/memory_ledger.h"
#include "server/models/running_model.h"
#include "server/models/work_thread.h"

namespace quire {

// A model that runs, with the memory promised to it.
struct BroughtUp {
  std::shared_ptr<RunningModel> running;
  std::shared_ptr<const ServedModel> served;
  std::uint64_t promised = 0;
  std::uint64_t promised_on_host = 0;  // beside a GPU
};

class ModelLoader {
 public:
  using Specs = std::vector<HostedModelSpec>;
  using Opened = std::vector<std::unique_ptr<OpenedModel>>;
  // Called on the thread `models` with the address that the model had.
  using OnReleased = std::function<void(const RunningModel* model)>;

  // `measure` returns the memory for models on their device, `measure_host` the machine's memory left beside a GPU.
  ModelLoader(ModelOpener open, std::function<MachineMemory()> measure, std::function<MachineMemory()> measure_host,
              std::shared_ptr<WorkThread> thread, OnReleased on_released);
  ModelLoader(const ModelLoader&) = delete;
  ModelLoader& operator=(const ModelLoader&) = delete;

  // Opens those to be preloaded (null: the others) and plans the memory of all. Throws StartupError.
  Opened open_all(Specs& specs, const EngineOptions& general) const;
  // Throws StartupError where start-up would; loads no weights.
  void check(Specs specs, const EngineOptions& general) const;
  // Throws StartupError, and Interrupted.
  BroughtUp bring_up(const HostedModelSpec& spec, std::unique_ptr<OpenedModel> opened,
                     const std::function<bool()>& interrupted);
  // The error if loading fails; nullopt: it was stopped, or the process ends.
  std::optional<Result<BroughtUp>> load(const HostedModelSpec& spec, const std::stop_token& stop);
  // Reason why the model would not fit with so much more memory free.
  std::optional<Error> refusal_without(const HostedModelSpec& spec, std::uint64_t promised,
                                       std::uint64_t promised_on_host) const;

  // Interrupts loads, now and later.
  void interrupt() { ending_ = true; }
  // Ends the engines of all models that have a holder. After interrupt() and the thread's end.
  void stop_all();

 private:
  // A model's promised memory, until this and its copies are gone.
  struct Promises {
    std::shared_ptr<const std::uint64_t> own;
    std::shared_ptr<const std::uint64_t> on_host;
  };
  // A model without holders.
  struct Ended {
    std::unique_ptr<RunningModel> model;
    Promises promises;
  };

  void bury(Ended& ended);
  void plan_start(Specs& specs, std::int64_t kv_budget, const Opened& opened) const;

  const ModelOpener open_;
  MemoryLedger ledger_;
  MemoryLedger host_ledger_;
  const std::shared_ptr<WorkThread> thread_;
  const OnReleased on_released_;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<RunningModel>> alive_;  // perhaps still referenced
};

// Throws StartupError if two models share a name.
void check_names(const std::vector<HostedModelSpec>& specs);
// Runs `work`; with several models, its error names the one refused.
void name_failures(const HostedModelSpec& spec, const std::function<void()>& work);

}  // namespace quire
