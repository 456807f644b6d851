// ModelHost: the objects that serve one model, from its files to its engine, in the order of their dependencies.
// Threads as in RunningModel; step_trace() and the engine's queue belong to the holder of the model.
#pragma once

#include <memory>

#include "core/grammar/compiler.h"
#include "kernels/registry.h"
#include "server/fleet/fleet_options.h"
#include "server/models/model_sight.h"
#include "server/models/running_model.h"

namespace quire {

// Opens models whose engines take turns on this backend's compute threads. They share KV blocks if the store's options
// name a store, and publish events of their prefix caches if the event options name an endpoint. Throws StartupError
// for an endpoint that cannot be used.
ModelOpener open_hosts(const BackendOptions& backend, const RedisStoreOptions& shared_store = {},
                       const CacheEventOptions& cache_events = {});

class ModelHost final : public RunningModel {
 public:
  // Packs the weights and starts the engine. Throws StartupError, or Interrupted as soon as `interrupted` returns true.
  ModelHost(const HostedModelSpec& spec, std::shared_ptr<const LoadedModel> loaded, std::unique_ptr<Backend> backend,
            const MemoryPlan& plan, const std::function<bool()>& interrupted,
            std::shared_ptr<const LoadedModel> loaded_drafter = nullptr,
            std::shared_ptr<const ModelSight> sight = nullptr);

  std::shared_ptr<ServedModel> describe(const HostedModelSpec& spec) const override;
  RequestQueue& queue() override { return engine_->queue(); }
  EngineStats stats() const override { return engine_->stats(); }
  bool healthy() const override { return engine_->healthy(); }
  CacheConfig cache_config() const override { return cache_; }
  std::uint64_t weight_bytes() const override { return weight_bytes_; }
  StepTrace* step_trace() override { return &engine_->step_trace(); }
  EngineView::Reading view() override { return engine_->view(); }
  void reconfigure(const EngineOptions& options) override {
    engine_->reconfigure(options.queue, options.scheduler.key_weights);
  }
  void order_slot(SlotOrder order) override { engine_->order_slot(std::move(order)); }
  AdapterPool* adapters() override { return adapters_.get(); }
  void stop() override;
  ~ModelHost() override { stop(); }

 private:
  // Makes model_.
  ModelIdentity build(const HostedModelSpec& spec, const std::function<bool()>& interrupted);
  // Before the engine is made. Throws StartupError.
  void load_adapters(const HostedModelSpec& spec);

  std::shared_ptr<const LoadedModel> loaded_;
  std::shared_ptr<const LoadedModel> loaded_drafter_;  // null: none
  std::shared_ptr<const ModelSight> sight_;            // null: it reads text only
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const GrammarCompiler> grammar_compiler_;
  std::shared_ptr<AdapterPool> adapters_;  // null: it takes none
  CacheConfig cache_;
  TextTasks tasks_;
  std::uint64_t weight_bytes_ = 0;
  std::int64_t created_ = 0;  // Unix seconds
};

}  // namespace quire
