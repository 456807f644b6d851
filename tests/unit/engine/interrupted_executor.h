// InterruptedExecutor: an Executor whose steps are often ended early, as by an arrival: after how many rows is drawn
// from a seed. One thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "core/executor/executor.h"

namespace quire::test {

class InterruptedExecutor final : public Executor {
 public:
  InterruptedExecutor(std::unique_ptr<Executor> executor, std::uint32_t seed)
      : executor_(std::move(executor)), random_(seed) {}

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    StepArrays cut = arrays;
    cut.slice_rows = 1 + static_cast<std::int64_t>(random_() % 9);
    interrupt_ = random_() % 2 == 0;
    cut.interrupt = &interrupt_;
    return executor_->submit(plan, cut);
  }
  bool can_draft() const override { return executor_->can_draft(); }
  DraftOutput draft(const DraftArrays& arrays, std::span<const DrawRow> draws) override {
    kEngineThread.assume();
    return executor_->draft(arrays, draws);
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return executor_->upload(values); }
  const Model& model() const override { return executor_->model(); }
  KvStorage& storage() override { return executor_->storage(); }
  KvStorage* window_storage() override { return executor_->window_storage(); }
  std::string name() const override { return executor_->name(); }
  StateStorage* states() override { return executor_->states(); }

 private:
  std::unique_ptr<Executor> executor_;
  std::mt19937 random_;
  std::atomic<bool> interrupt_{false};
};

}  // namespace quire::test
