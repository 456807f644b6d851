// WatchedExecutor: an Executor that shows each step's plan to the test before it is computed, and lets it fail there as
// the host may. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/executor/executor.h"

namespace quire::test {

using OnSubmit = std::function<void(const StepPlan&, const StepArrays&)>;

class WatchedExecutor final : public Executor {
 public:
  WatchedExecutor(std::unique_ptr<Executor> executor, OnSubmit on_submit)
      : executor_(std::move(executor)), on_submit_(std::move(on_submit)) {}

  std::int64_t depth() const override { return executor_->depth(); }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    kEngineThread.assume();
    on_submit_(plan, arrays);
    return executor_->submit(plan, arrays);
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
  StateStorage* states() override { return executor_->states(); }
  std::string name() const override { return executor_->name(); }

 private:
  const std::unique_ptr<Executor> executor_;
  const OnSubmit on_submit_;
};

}  // namespace quire::test
