// CrowdedScheduler: a scheduler that serves a steady crowd: whenever a sequence ends another one arrives, and the pool
// is too small for all running ones, so that steps admit and preempt. Deterministic. One thread at a time.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/sched/scheduler.h"

namespace quire::test {

struct Crowd {
  int num_running = 1000;  // limit of running sequences
  int num_waiting = 10'000;
  std::int64_t num_blocks = 40'000;
  int min_output = 100;
  int max_output = 800;
  int num_keys = 50;
  int num_choices = 1;  // choices of every sixteenth request; others have one
  SchedulerPolicy policy = SchedulerPolicy::kFcfs;
};

class CrowdedScheduler {
 public:
  explicit CrowdedScheduler(const Crowd& crowd)
      : crowd_(crowd), kv_(crowd.num_blocks, 16, true), scheduler_(options_of(crowd), kv_) {
    plan.reserve(static_cast<std::size_t>(crowd.num_running));
    for (int i = 0; i < crowd.num_running + crowd.num_waiting; ++i)
      arrive();
  }

  void schedule() {
    const std::int64_t num_running_before = scheduler_.num_running();
    scheduler_.schedule(plan);
    num_admitted = scheduler_.num_running() - num_running_before + static_cast<std::int64_t>(plan.preempted.size());
  }
  void commit() {
    const double seconds =
        0.02 + 1e-5 * static_cast<double>(plan.num_streaming) + 1e-4 * static_cast<double>(plan.num_prompt_tokens);
    scheduler_.commit(plan, {.seconds = seconds});
  }
  // Draws tokens; finished sequences end, and others arrive in their place.
  void turn_over() {
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      if (sequence.num_remaining() > 0) continue;
      if (sequence.num_generated() == 0) fork_choices(sequence);
      sequence.tokens.push_back(TokenId{below(30'000)});
      if (sequence.num_generated() == sequence.request->sampling.max_tokens) ended_.push_back(&sequence);
    }
    for (Sequence* sequence : ended_) {
      scheduler_.finish(*sequence);
      const bool is_choice = sequence->is_choice;
      sequences_.erase(sequence->id.value);
      if (!is_choice) arrive();
    }
    ended_.clear();
  }

  const Scheduler& scheduler() const { return scheduler_; }
  StepPlan plan;
  std::int64_t num_admitted = 0;  // sequences admitted in the plan, first or again

 private:
  static SchedulerOptions options_of(const Crowd& crowd) {
    SchedulerOptions options;
    options.max_num_seqs = crowd.num_running;
    options.max_num_batched_tokens = 8192;
    options.policy = crowd.policy;
    options.max_step_time_ms = SchedulerOptions::kAutoStepTime;
    return options;
  }

  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  // Half of the prompts begin with one of a few shared texts.
  void arrive() {
    auto request = std::make_shared<Request>();
    const int common = below(8);
    const int num_common = common < 4 ? 64 + 32 * common : 0;
    for (int i = 0; i < num_common; ++i)
      request->prompt.push_back(TokenId{common * 1000 + i});
    for (int left = 16 + below(200); left > 0; --left)
      request->prompt.push_back(TokenId{below(30'000)});
    request->sampling.max_tokens = crowd_.min_output + below(crowd_.max_output - crowd_.min_output + 1);
    request->num_choices = num_arrived_ % 16 == 0 ? crowd_.num_choices : 1;
    request->key_name = "key" + std::to_string(num_arrived_ % crowd_.num_keys);
    request->priority = below(3);
    request->arrival = Clock::time_point(std::chrono::milliseconds(10 * num_arrived_));
    ++num_arrived_;
    scheduler_.add(make_sequence(std::move(request)));
  }

  void fork_choices(Sequence& parent) {
    if (parent.is_choice) return;
    for (int choice = 1; choice < parent.request->num_choices; ++choice) {
      Sequence& child = make_sequence(parent.request);
      scheduler_.fork(parent, child);
      child.tokens.push_back(TokenId{below(30'000)});
    }
  }

  Sequence& make_sequence(std::shared_ptr<const Request> request) {
    const std::int64_t id = num_made_++;
    Sequence& sequence = *sequences_.emplace(id, std::make_unique<Sequence>()).first->second;
    sequence.id = SequenceId{id};
    sequence.tokens = request->prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request->prompt.size());
    sequence.request = std::move(request);
    return sequence;
  }

  const Crowd crowd_;
  std::mt19937 random_{1};
  KvCache kv_;
  Scheduler scheduler_;
  std::unordered_map<std::int64_t, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> ended_;
  std::int64_t num_arrived_ = 0;
  std::int64_t num_made_ = 0;
};

}  // namespace quire::test
