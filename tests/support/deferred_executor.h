// DeferredExecutor: an Executor of depth two whose device completes late: a submitted step is computed at some later
// call, in the order of a stream, at the latest when it is waited for; a seed decides when. Results that are not ready
// are poison, and arrays that change before they were computed are detected. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/executor/executor.h"

namespace quire::test {

class DeferredExecutor final : public Executor {
 public:
  DeferredExecutor(std::unique_ptr<Executor> device, std::uint32_t seed)
      : device_(std::move(device)), storage_(device_->storage()), random_(seed) {
    if (device_->window_storage() != nullptr) window_storage_.emplace(*device_->window_storage());
    if (device_->states() != nullptr) states_.emplace(*device_->states());
  }

  std::int64_t depth() const override { return 2; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    complete_some();
    Slot& slot = slots_[num_submitted_++ % slots_.size()];
    if (!slot.waited) throw std::logic_error("three steps are in flight");
    slot.begin(*this, plan, arrays, num_submitted_ - 1);
    work_.push_back({slot.number, [&slot] { slot.compute(); }});
    complete_some();
    return slot;
  }
  // Called only while no step is in flight.
  bool can_draft() const override { return device_->can_draft(); }
  DraftOutput draft(const DraftArrays& arrays, std::span<const DrawRow> draws) override {
    if (!work_.empty()) throw std::logic_error("drafts beside a step in flight");
    return device_->draft(arrays, draws);
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return device_->upload(values); }
  const Model& model() const override { return device_->model(); }
  KvStorage& storage() override { return storage_; }
  KvStorage* window_storage() override { return window_storage_ ? &*window_storage_ : nullptr; }
  std::string name() const override { return device_->name(); }
  StateStorage* states() override { return states_ ? &*states_ : nullptr; }

 private:
  static constexpr TokenId kPoison{-123'456};
  static constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

  // A copy of the data that the arrays view.
  struct ArraysCopy {
    std::vector<std::int32_t> token_ids, positions, query_start, context_len, table_start, tables, slots, states,
        window_tables, window_slots, logit_rows, hidden_rows, label_rows;
    std::vector<const Adapter*> adapters;
    bool operator==(const ArraysCopy&) const = default;
  };
  static ArraysCopy copy_of(const StepArrays& arrays) {
    const auto copy = [](std::span<const std::int32_t> from) { return std::vector(from.begin(), from.end()); };
    const AttentionBatch& batch = arrays.attention;
    return {copy(arrays.token_ids),
            copy(arrays.positions),
            copy(batch.query_start),
            copy(batch.context_len),
            copy(batch.block_table_start),
            copy(batch.block_tables),
            copy(batch.slots),
            copy(arrays.states),
            copy(arrays.window.block_tables),
            copy(arrays.window.slots),
            copy(arrays.logit_rows),
            copy(arrays.hidden_rows),
            copy(arrays.label_rows),
            {arrays.adapters.begin(), arrays.adapters.end()}};
  }
  struct DrawCopy {
    std::int64_t logit_row;
    SamplerState state;
    std::vector<TokenId> tokens;
    std::int64_t num_prompt_tokens;
    std::vector<std::uint32_t> mask;
  };

  struct Slot final : Ticket {
    void begin(DeferredExecutor& owner, const StepPlan& step_plan, const StepArrays& step_arrays, std::uint64_t n) {
      executor = &owner;
      plan = &step_plan;
      arrays = step_arrays;
      copied = copy_of(step_arrays);
      number = n;
      waited = false;
      failure = nullptr;
      draws.clear();
      scores.clear();
      poison();
    }
    void poison() {
      for (DrawnToken& token : output.tokens)
        token = {.token = kPoison, .logprob = TokenLogprob{kPoison, kNoNumber, {}}};
      for (std::optional<TokenLogprob>& logprob : output.logprobs)
        logprob = TokenLogprob{kPoison, kNoNumber, {}};
      std::fill(hidden.begin(), hidden.end(), kNoNumber);
      std::fill(labels.begin(), labels.end(), kNoNumber);
    }
    void draw(const DrawBatch& batch) override {
      for (const DrawRow& row : batch.draws) {
        draws.push_back({row.logit_row,
                         *row.state,
                         {row.tokens.begin(), row.tokens.end()},
                         row.num_prompt_tokens,
                         {row.mask.begin(), row.mask.end()}});
      }
      scores.assign(batch.scores.begin(), batch.scores.end());
      executor->work_.push_back({number, [this] { finish_draw(); }});
      executor->complete_some();
    }
    StepOutput& wait() override {
      executor->complete_through(number);
      waited = true;
      if (failure != nullptr) std::rethrow_exception(failure);
      output.hidden = hidden;
      output.labels = labels;
      return output;
    }

    void compute() {
      if (copy_of(arrays) != copied) throw std::logic_error("a step's arrays changed before it was computed");
      StepArrays resolved = arrays;
      const std::vector<TokenId>& before = executor->drawn_;
      for (std::int32_t& id : copied.token_ids) {
        if (id < 0) id = before.at(static_cast<std::size_t>(-1 - id)).value;
      }
      resolved.token_ids = copied.token_ids;
      ticket = &executor->device_->submit(*plan, resolved);
    }
    void finish_draw() {
      std::vector<DrawRow> rows;
      for (const DrawCopy& copy : draws)
        rows.push_back({copy.logit_row, &copy.state, copy.tokens, copy.num_prompt_tokens, copy.mask});
      ticket->draw({rows, scores});
      try {
        output = ticket->wait();
        hidden.assign(output.hidden.begin(), output.hidden.end());
        labels.assign(output.labels.begin(), output.labels.end());
      } catch (...) {
        failure = std::current_exception();
      }
      executor->drawn_.clear();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool has_token = failure == nullptr && output.tokens[i].token;
        executor->drawn_.push_back(has_token ? *output.tokens[i].token : TokenId{0});
      }
    }

    DeferredExecutor* executor = nullptr;
    const StepPlan* plan = nullptr;
    StepArrays arrays;
    ArraysCopy copied;
    std::uint64_t number = 0;
    Ticket* ticket = nullptr;  // ticket of the device
    std::vector<DrawCopy> draws;
    std::vector<ScoreRow> scores;
    StepOutput output;
    std::vector<float> hidden;
    std::vector<float> labels;
    std::exception_ptr failure;
    bool waited = true;
  };

  // Blocks and states change in steps only: other reads and writes of them are detected.
  class Storage final : public KvStorage {
   public:
    explicit Storage(const KvStorage& device) : device_(device) {}
    const KvLayout& layout() const override { return device_.layout(); }
    std::size_t block_bytes() const override { return device_.block_bytes(); }
    void copy_block(std::int32_t, std::int32_t) override { fail(); }
    void read_block(std::int32_t, std::span<std::byte>) const override { fail(); }
    void write_block(std::int32_t, std::span<const std::byte>) override { fail(); }

   private:
    const KvStorage& device_;
  };
  class States final : public StateStorage {
   public:
    explicit States(const StateStorage& device) : device_(device) {}
    const StateLayout& layout() const override { return device_.layout(); }
    std::size_t state_bytes() const override { return device_.state_bytes(); }
    void copy_state(std::int32_t, std::int32_t) override { fail(); }
    void read_state(std::int32_t, std::span<std::byte>) const override { fail(); }
    void write_state(std::int32_t, std::span<const std::byte>) override { fail(); }

   private:
    const StateStorage& device_;
  };
  [[noreturn]] static void fail() { throw std::logic_error("the host touches the device's memory beside a step"); }

  struct Work {
    std::uint64_t step;
    std::function<void()> run;
  };
  void complete_one() {
    const Work work = std::move(work_.front());
    work_.pop_front();
    work.run();
  }
  void complete_some() {
    while (!work_.empty() && random_() % 3 == 0)
      complete_one();
  }
  void complete_through(std::uint64_t step) {
    while (!work_.empty() && work_.front().step <= step)
      complete_one();
  }

  std::unique_ptr<Executor> device_;
  Storage storage_;
  std::optional<Storage> window_storage_;
  std::optional<States> states_;
  std::mt19937 random_;
  std::array<Slot, 2> slots_;
  std::uint64_t num_submitted_ = 0;
  std::deque<Work> work_;
  std::vector<TokenId> drawn_;  // drawn by the previous step, in the device's memory
};

}  // namespace quire::test
