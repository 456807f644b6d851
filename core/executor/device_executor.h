// DeviceExecutor: an Executor of a backend with steps(): a step is enqueued when it is submitted, and again when its
// draws are known, and two are in flight. The device draws, except rows whose request asks for samplers that it lacks:
// the engine thread waits for such a step's logits and draws from them on the host. Engine thread only. Invariant:
// Executor's; where a token is drawn does not change the text.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "core/executor/draft_round.h"
#include "core/executor/executor_memory.h"
#include "core/sampling/draw_plan.h"

namespace quire {

class DeviceExecutor final : public Executor {
 public:
  // The model and the backend, which has steps(), must outlive the executor.
  DeviceExecutor(Model& model, Backend& backend, ExecutorMemory memory, const ExecutorLimits& limits);

  std::int64_t depth() const override { return StepOps::kInFlight; }
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
  DeviceMemoryUse device_memory() const override { return steps_.memory(); }

 private:
  class Submitted final : public Ticket {
   public:
    void draw(const DrawBatch& batch) override;
    StepOutput& wait() override;

    DeviceExecutor* executor = nullptr;
    std::int64_t number = -1;
    MatrixView logits;  // the device's
    StepOutput output;
    std::vector<std::size_t> drawn_places;              // draws made by the device
    std::vector<TokenScore> scores;                     // scores computed by the device
    std::vector<std::optional<TokenLogprob>*> targets;  // place of each score in the output
    std::exception_ptr failure;                         // a device failure, for wait() to report
  };

  void compute(Submitted& step, const StepPlan& plan, const StepArrays& arrays);
  void move(Submitted& step, const Transfers& transfers);
  void finish_moves(Submitted& step);
  void draw(Submitted& step, const DrawBatch& batch);
  bool plan_draw(Submitted& step, const DrawBatch& batch, std::size_t i);
  void draw_on_host(Submitted& step, const DrawBatch& batch);
  void finish(Submitted& step);

  Model& model_;
  Backend& backend_;
  StepOps& steps_;
  const ExecutorMemory memory_;
  DraftRound draft_round_;
  Sampler sampler_;
  DrawPlan plan_;
  std::vector<BlockTransfer> transfers_;
  std::vector<SampleRow> host_rows_;
  std::vector<std::size_t> host_places_;
  std::array<Submitted, StepOps::kInFlight> submitted_;
  std::size_t num_submitted_ = 0;
};

}  // namespace quire
