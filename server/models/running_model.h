// RunningModel: a model with its engine, behind one interface. Any thread, except stop() and the destructor: one thread
// at a time, when it has no other holder. OpenedModel: a model that was opened and checked, with nothing allocated for
// it yet; one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/engine/adapter_pool.h"
#include "core/engine/figures/engine_stats.h"
#include "core/engine/figures/engine_view.h"
#include "core/engine/figures/step_trace.h"
#include "core/engine/slot_orders.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/memory_plan.h"
#include "server/api/common/served_model.h"
#include "server/models/model_spec.h"

namespace quire {

// Thrown by a model's loading when the server is asked to end meanwhile.
struct Interrupted {};

// Layout of a model's KV cache, for dashboards.
struct CacheConfig {
  std::int32_t block_size = 0;
  std::int64_t num_blocks = 0;
  std::string dtype;
  bool prefix_caching = false;
};

class RunningModel {
 public:
  virtual ~RunningModel() = default;
  // The model as the API sees it under the spec's names and template, without the queue. Throws StartupError.
  virtual std::shared_ptr<ServedModel> describe(const HostedModelSpec& spec) const = 0;
  virtual RequestQueue& queue() = 0;
  virtual EngineStats stats() const = 0;
  virtual bool healthy() const = 0;
  virtual CacheConfig cache_config() const { return {}; }
  virtual std::uint64_t weight_bytes() const { return 0; }
  virtual StepTrace* step_trace() = 0;                 // may be null
  virtual AdapterPool* adapters() { return nullptr; }  // null: it takes none
  virtual EngineView::Reading view() { return {}; }
  // Saves, restores or erases a slot, as the order says.
  virtual void order_slot(SlotOrder order) {
    (*order.done)(failure(ErrorKind::kInvalidRequest, "This model keeps no slots", "unsupported_operation"));
  }
  // Applies the settings that can change while the engine runs: the queue's limits and the keys' weights.
  virtual void reconfigure(const EngineOptions& options) = 0;
  // Ends the engine's thread: no event is sent afterwards.
  virtual void stop() = 0;
};

class OpenedModel {
 public:
  virtual ~OpenedModel() = default;
  virtual MemoryNeeds needs() const = 0;
  // Checks the model's other files like start(): template, adapters. Throws StartupError.
  virtual void check() const {}
  // Loads it and starts its engine. Throws StartupError, and Interrupted once `interrupted` returns true.
  virtual std::unique_ptr<RunningModel> start(const MemoryPlan& plan, const std::function<bool()>& interrupted) = 0;
};

// The figures of a model's file that the API shows.
ModelFacts facts_of(const ModelInfo& info);
// ServedModel::take_adapter() from this pool; null for null.
std::function<std::optional<TakenAdapter>(const std::string& name)> adapter_taker(std::shared_ptr<AdapterPool> pool);

// Opens a model; throws StartupError.
using ModelOpener = std::function<std::unique_ptr<OpenedModel>(const HostedModelSpec& spec)>;

}  // namespace quire
