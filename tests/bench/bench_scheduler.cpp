// The cost of one schedule() and commit(): with nothing to admit, and while sequences are admitted and preempted; and
// of block operations. Prints medians and 99th percentiles in microseconds, and allocations a step.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>
#include <vector>

#include "core/sched/scheduler.h"
#include "tests/support/crowded_scheduler.h"

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
using quire::test::Crowd;
using quire::test::CrowdedScheduler;

constexpr int kSteps = 2000;

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

double microseconds_since(Clock::time_point began) {
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

void print(const char* what, const std::vector<double>& us) {
  std::printf("    %-18s%5zu steps: median%7.1f us, p99%7.1f us\n", what, us.size(), quantile(us, 0.5),
              quantile(us, 0.99));
}

// The first half of the steps is a warm-up.
void measure(const char* name, const Crowd& crowd) {
  CrowdedScheduler scheduler(crowd);
  std::vector<double> plan_us;
  std::vector<double> preempting_us;  // steps that preempt
  std::vector<double> commit_us;
  std::size_t num_allocated = 0;
  std::int64_t num_admitted = 0;
  std::size_t num_preempted = 0;
  std::int64_t num_running = 0;
  for (int step = 0; step < 2 * kSteps; ++step) {
    const std::size_t allocations_before = num_allocations;
    const auto began = Clock::now();
    scheduler.schedule();
    const double planned_us = microseconds_since(began);
    const std::size_t allocated = num_allocations - allocations_before;
    const auto planned = Clock::now();
    scheduler.commit();
    const double committed_us = microseconds_since(planned);
    scheduler.turn_over();
    if (step < kSteps) continue;
    plan_us.push_back(planned_us);
    if (!scheduler.plan.preempted.empty()) preempting_us.push_back(planned_us);
    commit_us.push_back(committed_us);
    num_allocated += allocated;
    num_admitted += scheduler.num_admitted;
    num_preempted += scheduler.plan.preempted.size();
    num_running += scheduler.scheduler().num_running();
  }
  const auto per_step = [](auto count) { return static_cast<double>(count) / kSteps; };
  std::printf("  %-20s%7.1f running,%6ld waiting; a step admits%6.2f, preempts%6.2f; %.3f allocations\n", name,
              per_step(num_running), static_cast<long>(scheduler.scheduler().num_waiting()), per_step(num_admitted),
              per_step(num_preempted), per_step(num_allocated));
  print("schedule", plan_us);
  if (!preempting_us.empty()) print("  that preempts", preempting_us);
  print("commit", commit_us);
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
  std::printf("block pool of %d: %.1f ns for an allocation and release\n", kBlocks,
              microseconds_since(began) / kRounds * 1e3);
}

}  // namespace

int main() {
  using quire::SchedulerPolicy;
  struct Named {
    const char* name;
    SchedulerPolicy policy;
  };
  for (const auto& [name, policy] :
       {Named{"fcfs", SchedulerPolicy::kFcfs}, Named{"priority", SchedulerPolicy::kPriority},
        Named{"fair", SchedulerPolicy::kFair}}) {
    std::printf("%s\n", name);
    measure("no arrivals", {.num_blocks = 1'000'000, .min_output = 10'000, .max_output = 10'000, .policy = policy});
    measure("choices take turns", {.num_keys = 1000, .num_choices = 8, .policy = policy});
    measure("memory is short", {.num_running = 1400, .num_blocks = 48'000, .max_output = 2000, .policy = policy});
  }
  measure_blocks();
}
