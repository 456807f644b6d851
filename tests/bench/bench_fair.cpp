// Fairness of the scheduler on a real model: bench_fair MODEL [itl|fair]...
#include <functional>
#include <map>

#include "tests/bench/engine_bench.h"

namespace {

using namespace quire;
using namespace quire::bench;

EngineOptions options_of() {
  EngineOptions options;
  options.queue.max_queued_requests = 100'000;
  options.queue.max_queued_tokens = 1 << 30;
  options.kv_cache.enable_prefix_caching = false;
  return options;
}

// Four streams, and a prompt of 1,500 tokens whenever the last one has been answered.
void measure_itl(BenchModel& model) {
  constexpr int kStreams = 4;
  constexpr int kStreamTokens = 240;
  constexpr int kLongTokens = 1500;
  double step_ms = 0.0;  // step of the streams alone
  {
    BenchEngine engine(model, 2000, options_of());
    std::vector<std::shared_ptr<TimingSink>> sinks;
    for (int i = 0; i < kStreams; ++i)
      sinks.push_back(engine.submit(model.tokens(16, i), 60));
    engine.run();
    step_ms = 1e3 * seconds_between(sinks[0]->times[10], sinks[0]->times[59]) / 49.0;
  }
  std::printf("itl: %d streams alone: a step takes %.2f ms\n", kStreams, step_ms);
  for (const double factor : {0.0, 8.0, 4.0}) {
    EngineOptions options = options_of();
    options.scheduler.max_num_batched_tokens = 2048;
    options.scheduler.target_itl_ms = factor * step_ms;
    BenchEngine engine(model, 2000, options);
    engine.submit(model.tokens(kLongTokens, 7), 1);  // teaches the price of a prompt token
    engine.run();
    const auto steps_before = engine.engine->stats().num_steps;
    engine.submit(model.tokens(kLongTokens, 8), 1);
    engine.run();
    const auto steps_alone = engine.engine->stats().num_steps - steps_before;
    std::vector<std::shared_ptr<TimingSink>> streams;
    for (int i = 0; i < kStreams; ++i)
      streams.push_back(engine.submit(model.tokens(16, i), kStreamTokens));
    std::vector<double> first;
    std::shared_ptr<TimingSink> visitor;
    auto sent = Clock::now();
    for (int seed = 100; !streams[0]->finish;) {
      if (visitor && visitor->finish) {
        first.push_back(visitor->first_after(sent));
        visitor = nullptr;
      }
      if (!visitor) {
        visitor = engine.submit(model.tokens(kLongTokens, ++seed), 1);
        sent = Clock::now();
      }
      engine.step();
    }
    engine.run();
    std::vector<double> gaps;
    for (const auto& stream : streams) {
      for (std::size_t i = 20; i < stream->times.size(); ++i)
        gaps.push_back(1e3 * seconds_between(stream->times[i - 1], stream->times[i]));
    }
    std::printf(
        "itl: target %6.1f ms: between tokens p50 %.1f, p90 %.1f, p99 %.1f ms; %zu prompts of %d beside, first token "
        "after %.0f ms; with no stream beside it such a prompt takes %llu step(s)\n",
        options.scheduler.target_itl_ms, percentile(gaps, 50), percentile(gaps, 90), percentile(gaps, 99), first.size(),
        kLongTokens, 1e3 * percentile(first, 50), static_cast<unsigned long long>(steps_alone));
  }
}

// Two keys that always have requests waiting, one of them fifty times as many.
void measure_fair(BenchModel& model) {
  for (const double weight : {1.0, 3.0}) {
    EngineOptions options = options_of();
    options.scheduler.policy = SchedulerPolicy::kFair;
    options.scheduler.key_weights = {{"light", weight}};
    options.scheduler.max_num_seqs = 8;
    BenchEngine engine(model, 2000, options);
    std::map<std::string, std::vector<std::shared_ptr<TimingSink>>> sinks;
    const auto served = [&](const std::string& key) {  // prompts that were begun, and what was generated
      double tokens = 0.0;
      for (const auto& sink : sinks[key])
        tokens += sink->tokens.empty() ? 0.0 : 24.0 + static_cast<double>(sink->tokens.size()) - 1.0;
      return tokens;
    };
    const auto num_open = [&](const std::string& key) {
      return std::count_if(sinks[key].begin(), sinks[key].end(), [](const auto& sink) { return !sink->finish; });
    };
    int seed = 0;
    for (int step = 0; step < 1500; ++step) {
      while (num_open("heavy") < 500)
        sinks["heavy"].push_back(engine.submit(model.tokens(24, ++seed), 20, "heavy"));
      while (num_open("light") < 10)
        sinks["light"].push_back(engine.submit(model.tokens(24, ++seed), 20, "light"));
      engine.step();
    }
    const double ratio = served("light") / served("heavy");
    std::printf("fair: weights %.0f:1, one key sends 50 times as much: served %.0f and %.0f tokens, %.3f:1 (%+.1f%%)\n",
                weight, served("light"), served("heavy"), ratio, 100.0 * (ratio / weight - 1.0));
    engine.engine->stop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(BenchModel&)>> all = {{"itl", measure_itl}, {"fair", measure_fair}};
  if (argc < 2) {
    std::fprintf(stderr, "bench_fair MODEL [itl|fair]...\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a cut run still prints its results
  BenchModel model(argv[1]);
  for (const auto& [name, measure] : all) {
    if (argc == 2 || std::find(argv + 2, argv + argc, name) != argv + argc) measure(model);
  }
  return 0;
}
