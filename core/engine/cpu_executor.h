// CpuExecutor: an Executor whose backend computes in the calling thread: a step is computed when it is submitted, its
// tokens are drawn by the host's Sampler, and one is in flight at once. Engine thread only. Nothing is allocated in a
// step within the limits.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "core/engine/executor.h"

namespace quire {

struct ExecutorLimits {
  std::int64_t max_rows = 0;       // of a step
  std::int64_t max_sequences = 0;  // in a step, and as many choices that are forked in it
  std::int64_t max_tokens = 0;     // of a sequence
};

class CpuExecutor final : public Executor, private Ticket {
 public:
  // The model and the backend must outlive the executor.
  CpuExecutor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage, const ExecutorLimits& limits,
              std::unique_ptr<StateStorage> states = nullptr, std::unique_ptr<KvStorage> window_storage = nullptr);

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override;
  DraftOutput draft(const DraftArrays& arrays, std::span<const DrawRow> draws) override;
  bool can_draft() const override { return true; }
  const Model& model() const override { return model_; }
  KvStorage& storage() override { return *storage_; }
  KvStorage* window_storage() override { return window_storage_.get(); }
  StateStorage* states() override { return states_.get(); }
  std::string name() const override { return backend_.name(); }

 private:
  void draw(const DrawBatch& batch) override;
  StepOutput& wait() override;
  void note_computed(const StepPlan& plan, const StepArrays& arrays);
  void score(std::span<const ScoreRow> scores);
  void sample(std::span<const DrawRow> draws);

  Model& model_;
  Backend& backend_;
  const std::unique_ptr<KvStorage> storage_;
  const std::unique_ptr<StateStorage> states_;       // null: the model has no recurrent layers
  const std::unique_ptr<KvStorage> window_storage_;  // null: all layers keep all tokens
  Sampler sampler_;
  ModelOutput computed_;
  StepOutput output_;
  std::vector<SampleRow> rows_;
  std::exception_ptr failure_;  // of the device, for wait() to report
  std::vector<DraftedToken> drafted_;
  std::exception_ptr draft_failure_;  // for the next step's wait()
};

// As executor_for().
std::unique_ptr<CpuExecutor> make_cpu_executor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                               const SchedulerOptions& scheduler, const KvCounts& counts = {});

}  // namespace quire
