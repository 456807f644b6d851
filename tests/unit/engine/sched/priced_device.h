// PricedDevice: an Executor whose steps take the time of a price, not the machine's, so that a test's choices do not
// depend on the machine's load. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/executor/executor.h"
#include "core/sched/step_cost.h"

namespace quire::test {

class PricedDevice final : public Executor, private Ticket {
 public:
  PricedDevice(std::unique_ptr<Executor> device, const StepPrice& price) : device_(std::move(device)), price_(price) {}

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    kEngineThread.assume();
    plan_ = &plan;
    ticket_ = &device_->submit(plan, arrays);
    return *this;
  }
  // A tenth of a step's fixed price, and of a prompt's for each further row of a sequence.
  bool can_draft() const override { return device_->can_draft(); }
  DraftOutput draft(const DraftArrays& arrays, std::span<const DrawRow> draws) override {
    kEngineThread.assume();
    DraftOutput output = device_->draft(arrays, draws);
    const auto num_further = static_cast<double>(arrays.num_rows() - std::ssize(arrays.attention.context_len));
    output.seconds = (price_.fixed + num_further * price_.prompt_token) / 10.0;
    return output;
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return device_->upload(values); }
  const Model& model() const override { return device_->model(); }
  KvStorage& storage() override { return device_->storage(); }
  KvStorage* window_storage() override { return device_->window_storage(); }
  StateStorage* states() override { return device_->states(); }
  std::string name() const override { return device_->name(); }

 private:
  void draw(const DrawBatch& batch) override {
    kEngineThread.assume();
    ticket_->draw(batch);
  }
  StepOutput& wait() override {
    kEngineThread.assume();
    StepOutput& output = ticket_->wait();
    output.seconds = price_.seconds(output.terms_of(*plan_));
    return output;
  }

  const std::unique_ptr<Executor> device_;
  const StepPrice price_;
  const StepPlan* plan_ = nullptr;
  Ticket* ticket_ = nullptr;
};

}  // namespace quire::test
