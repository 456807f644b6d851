// CpuExecutor: an Executor whose backend computes in the calling thread: a step is computed when it is submitted, its
// tokens are drawn by the host's Sampler, and one is in flight at once. Engine thread only. Nothing is allocated in a
// step within the limits.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "core/executor/draft_round.h"
#include "core/executor/executor_memory.h"

namespace quire {

class CpuExecutor final : public Executor, private Ticket {
 public:
  // The model and the backend must outlive the executor.
  CpuExecutor(Model& model, Backend& backend, ExecutorMemory memory, const ExecutorLimits& limits);

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override;
  DraftOutput draft(const DraftArrays& arrays, std::span<const DrawRow> draws) override {
    return draft_round_.compute(arrays, draws, *memory_.storage, sampler_);
  }
  bool can_draft() const override { return true; }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return backend_.upload(values); }
  const Model& model() const override { return model_; }
  KvStorage& storage() override { return *memory_.storage; }
  KvStorage* window_storage() override { return memory_.window_storage.get(); }
  StateStorage* states() override { return memory_.states.get(); }
  std::string name() const override { return backend_.name(); }

 private:
  void draw(const DrawBatch& batch) override;
  StepOutput& wait() override;
  void note_computed(const StepPlan& plan, const StepArrays& arrays);
  void score(std::span<const ScoreRow> scores);
  void sample(std::span<const DrawRow> draws);

  Model& model_;
  Backend& backend_;
  const ExecutorMemory memory_;
  DraftRound draft_round_;
  Sampler sampler_;
  ModelOutput computed_;
  StepOutput output_;
  std::vector<SampleRow> rows_;
  std::exception_ptr failure_;  // a device failure, for wait() to report
};

// Does the work of executor_for().
std::unique_ptr<CpuExecutor> make_cpu_executor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                               const SchedulerOptions& scheduler, const KvCounts& counts = {});

}  // namespace quire
