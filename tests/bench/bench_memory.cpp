// Cost of sharing, preemption and a long queue on a real model: bench_memory MODEL [shared|pools|waiting]...
#include <functional>
#include <map>
#include <numeric>

#include "tests/bench/engine_bench.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr int kStreams = 32;
constexpr int kSystemTokens = 1000;
constexpr int kSuffixTokens = 64;

EngineOptions options_of(int budget = 512) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 64;
  options.scheduler.max_num_batched_tokens = budget;
  options.queue.max_queued_requests = 100'000;
  options.queue.max_queued_tokens = 1 << 30;
  return options;
}

std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

struct FirstTokens {
  double alone;           // a single request, nothing else running
  double together;        // the mean of 31 that arrive at once
  double together_worst;  // the last of them
};

// Times to first token of requests that begin with `system`, after it has been computed once.
FirstTokens first_tokens(BenchModel& model, const std::vector<TokenId>& system, int seed) {
  BenchEngine engine(model, 4000, options_of());
  const auto own = [&](int i) { return joined(system, model.tokens(kSuffixTokens, seed + i)); };
  engine.submit(own(0), 2);
  engine.run();
  auto began = Clock::now();
  const auto single = engine.submit(own(1), 2);
  engine.run();
  FirstTokens result{single->first_after(began), 0.0, 0.0};
  std::vector<std::shared_ptr<TimingSink>> sinks;
  began = Clock::now();
  for (int i = 2; i <= kStreams; ++i)
    sinks.push_back(engine.submit(own(i), 2));
  engine.run();
  for (const auto& sink : sinks) {
    const double seconds = sink->first_after(began);
    result.together += seconds / static_cast<double>(sinks.size());
    result.together_worst = std::max(result.together_worst, seconds);
  }
  return result;
}

void measure_shared(BenchModel& model) {
  const std::vector<TokenId> system = model.tokens(kSystemTokens, 1);
  std::vector<double> alone;
  std::vector<double> together;
  std::vector<double> worst;
  for (int round = 0; round < 2; ++round) {
    const FirstTokens bare = first_tokens(model, {}, 1000 * (round + 1));
    const FirstTokens shared = first_tokens(model, system, 1000 * (round + 1));
    alone.push_back(shared.alone / bare.alone);
    together.push_back(shared.together / bare.together);
    worst.push_back(shared.together_worst / bare.together_worst);
    std::printf("  own %d tokens: alone %.1f ms, 31 together %.1f ms; after a shared %d: %.1f ms, %.1f ms\n",
                kSuffixTokens, 1e3 * bare.alone, 1e3 * bare.together, kSystemTokens, 1e3 * shared.alone,
                1e3 * shared.together);
  }
  std::printf("shared: time to first token x %.2f alone, x %.2f of 31 together (mean), x %.2f (last); target <= 1.30\n",
              percentile(alone, 50), percentile(together, 50), percentile(worst, 50));
  BenchEngine engine(model, 4000, options_of());
  for (int i = 0; i < kStreams; ++i)
    engine.submit(joined(system, model.tokens(kSuffixTokens, 9000 + i)), 1);
  engine.run();
  const double computed = static_cast<double>(engine.engine->stats().computed_tokens);
  const double ideal = kSystemTokens + kStreams * kSuffixTokens;
  std::printf("shared: %d arrive together: %.0f prompt tokens computed, ideal %.0f: +%.2f%%; target <= 2%%\n", kStreams,
              computed, ideal, 100.0 * (computed / ideal - 1.0));
}

struct Work {
  std::vector<TokenId> prompt;
  int max_tokens;
};

struct Outcome {
  std::vector<std::vector<TokenId>> texts;
  double seconds = 0.0;
  EngineStats stats;
};

Outcome served(BenchModel& model, const std::vector<Work>& work, std::int64_t num_blocks, std::int64_t host_bytes) {
  EngineOptions options = options_of();
  options.kv_cache.host_tier_bytes = host_bytes;
  BenchEngine engine(model, num_blocks, options);
  std::vector<std::shared_ptr<TimingSink>> sinks;
  for (const Work& each : work)
    sinks.push_back(engine.submit(each.prompt, each.max_tokens));
  Outcome outcome;
  outcome.seconds = engine.run();
  for (const auto& sink : sinks)
    outcome.texts.push_back(sink->tokens);
  outcome.stats = engine.engine->stats();
  return outcome;
}

void measure_pools(BenchModel& model) {
  std::vector<Work> work;
  std::int64_t demand = 0;
  double num_tokens = 0.0;
  for (int i = 0; i < kStreams; ++i) {
    work.push_back({model.tokens(48 + 16 * (i % 9), 100 + i), 32 + 2 * (i % 17)});
    const auto length = static_cast<std::int64_t>(work.back().prompt.size()) + work.back().max_tokens;
    demand += (length + 15) / 16;
    num_tokens += work.back().max_tokens;
  }
  Outcome whole = served(model, work, demand + kStreams, 0);
  const double again = served(model, work, demand + kStreams, 0).seconds;
  whole.seconds = std::min(whole.seconds, again);
  std::printf("pools: %d streams want %lld blocks; unbounded %.2f s, %.1f tokens/s\n", kStreams,
              static_cast<long long>(demand), whole.seconds, num_tokens / whole.seconds);
  for (const int percent : {50, 25, 10}) {
    for (const std::int64_t host_bytes : {std::int64_t{0}, std::int64_t{1} << 30}) {
      const Outcome outcome = served(model, work, demand * percent / 100, host_bytes);
      std::printf(
          "pools: %2d%%%s: %.2f s, %5.1f%% of unbounded, %llu preemptions, %llu tokens computed (%llu unbounded), "
          "%llu blocks restored, texts %s\n",
          percent, host_bytes > 0 ? " with a host tier" : "", outcome.seconds, 100.0 * whole.seconds / outcome.seconds,
          static_cast<unsigned long long>(outcome.stats.num_preemptions),
          static_cast<unsigned long long>(outcome.stats.computed_tokens),
          static_cast<unsigned long long>(whole.stats.computed_tokens),
          static_cast<unsigned long long>(outcome.stats.num_blocks_restored),
          outcome.texts == whole.texts ? "identical" : "DIFFERENT");
    }
  }
}

// The step of eight streams, with no request and with ten thousand waiting behind them.
void measure_waiting(BenchModel& model) {
  constexpr int kSteps = 200;
  for (const int num_waiting : {0, 10'000, 0, 10'000}) {
    EngineOptions options = options_of();
    options.scheduler.max_num_seqs = 8;
    BenchEngine engine(model, 4000, options);
    for (int i = 0; i < 8; ++i)
      engine.submit(model.tokens(16, i), kSteps + 50);
    for (int i = 0; i < num_waiting; ++i)
      engine.submit(model.tokens(64, 100 + i), 16);
    for (int i = 0; i < 20; ++i)
      engine.step();
    std::vector<double> times;
    for (int i = 0; i < kSteps; ++i) {
      const auto began = Clock::now();
      engine.step();
      times.push_back(1e6 * seconds_between(began, Clock::now()));
    }
    std::printf("waiting: %5d behind 8 streams: a step takes %.0f us (p90 %.0f)\n", num_waiting, percentile(times, 50),
                percentile(times, 90));
    engine.engine->stop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(BenchModel&)>> all = {
      {"shared", measure_shared}, {"pools", measure_pools}, {"waiting", measure_waiting}};
  if (argc < 2) {
    std::fprintf(stderr, "bench_memory MODEL [shared|pools|waiting]...\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a cut run still prints its results
  BenchModel model(argv[1]);
  for (const auto& [name, measure] : all) {
    const bool asked = argc == 2 || std::find(argv + 2, argv + argc, name) != argv + argc;
    if (asked) measure(model);
  }
  return 0;
}
