// The cost of one schedule() and commit() with many running and waiting sequences, and of block operations.
// Prints medians in microseconds, and the number of allocations of a steady step.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>
#include <vector>

#include "core/sched/scheduler.h"

namespace {

std::size_t num_allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using quire::Clock;

constexpr int kSteps = 2000;

struct Load {
  int num_running;
  int num_waiting;
  quire::SchedulerPolicy policy;
  const char* name;
};

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double percentile99(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 99 / 100];
}

quire::Sequence& add(quire::Scheduler& scheduler, std::deque<quire::Sequence>& sequences, int number) {
  auto request = std::make_shared<quire::Request>();
  for (int i = 0; i < 100; ++i)
    request->prompt.push_back(quire::TokenId{number * 131 + i * 7});
  request->sampling.max_tokens = 10'000;
  request->key_name = "key" + std::to_string(number % 50);
  request->arrival = Clock::time_point(std::chrono::milliseconds(number));
  quire::Sequence& sequence = sequences.emplace_back();
  sequence.id = quire::SequenceId{number};
  sequence.tokens = request->prompt;
  sequence.tokens.reserve(10'000);
  sequence.num_prompt_tokens = 100;
  sequence.request = std::move(request);
  scheduler.add(sequence);
  return sequence;
}

void measure(const Load& load) {
  quire::KvCache kv(400'000, 16, true);
  quire::SchedulerOptions options;
  options.max_num_seqs = load.num_running;
  options.max_num_batched_tokens = 8192;
  options.policy = load.policy;
  quire::Scheduler scheduler(options, kv);
  std::deque<quire::Sequence> sequences;
  for (int i = 0; i < load.num_running + load.num_waiting; ++i)
    add(scheduler, sequences, i);
  quire::StepPlan plan;
  std::vector<double> plan_us;
  std::vector<double> commit_us;
  plan_us.reserve(kSteps);
  commit_us.reserve(kSteps);
  std::size_t allocations_before = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2) allocations_before = num_allocations;
    const auto began = Clock::now();
    scheduler.schedule(plan);
    const auto planned = Clock::now();
    scheduler.commit(plan, {.seconds = 0.01});
    const auto committed = Clock::now();
    if (step >= kSteps / 2) {
      plan_us.push_back(std::chrono::duration<double, std::micro>(planned - began).count());
      commit_us.push_back(std::chrono::duration<double, std::micro>(committed - planned).count());
    }
    for (const auto& entry : plan.entries) {
      if (entry.sequence->num_remaining() == 0) entry.sequence->tokens.push_back(quire::TokenId{step});
    }
  }
  const std::size_t allocations = num_allocations - allocations_before;
  std::printf("%-9s %5d running %6d waiting: schedule %7.1f us (p99 %7.1f), commit %7.1f us, %.3f allocations a step\n",
              load.name, load.num_running, load.num_waiting, median(plan_us), percentile99(plan_us), median(commit_us),
              static_cast<double>(allocations) / (kSteps / 2));
}

void measure_blocks() {
  constexpr int kBlocks = 1 << 20;
  constexpr int kRounds = 4'000'000;
  quire::BlockPool pool(kBlocks);
  std::vector<quire::BlockId> held(8);
  const auto began = Clock::now();
  for (int i = 0; i < kRounds / 8; ++i) {
    if (!pool.allocate(held)) std::abort();
    for (const quire::BlockId block : held)
      pool.release(block, false);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  std::printf("block pool of %d: %.1f ns for an allocation and release\n", kBlocks, seconds / kRounds * 1e9);
}

}  // namespace

int main() {
  using quire::SchedulerPolicy;
  measure({1000, 0, SchedulerPolicy::kFcfs, "fcfs"});
  measure({1000, 10'000, SchedulerPolicy::kFcfs, "fcfs"});
  measure({1000, 10'000, SchedulerPolicy::kPriority, "priority"});
  measure({1000, 10'000, SchedulerPolicy::kFair, "fair"});
  measure_blocks();
}
