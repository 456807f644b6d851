// Waits of one request for others on a real model, each beside the required value: bench_time MODEL
// [alone|shared|small|identical|choices|streams|models][:TOKENS]... TOKENS: length of a long prompt (12,000). The
// engine runs on its own thread, as in the daemon. Build the same file on two commits and run them in turns.
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "tests/bench/engine_bench.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr int kLongTokens = 12'000;
constexpr int kSmallTokens = 20;
constexpr int kTries = 20;
constexpr double kStepBound = 0.25;  // seconds: the default of scheduler.max_step_time on a small model
constexpr double kTargetItl = 0.15;  // seconds: the daemon's default

// Keeps the times of its tokens; the engine thread writes, the benchmark's thread waits.
class SharedSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < event.tokens.size(); ++i)
      times_.push_back(Clock::now());
    if (event.finish) ++num_finished_;
    changed_.notify_all();
  }
  void wait_finished(int num_choices = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_finished_ >= num_choices; });
  }
  void wait_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return times_.size() >= count || num_finished_ > 0; });
  }
  std::vector<Clock::time_point> times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> times_;
  int num_finished_ = 0;
};

struct Sent {
  std::string id;
  std::shared_ptr<SharedSink> sink;
  Clock::time_point at;
  int num_choices = 1;
};

class RunningEngine {
 public:
  RunningEngine(BenchModel& model, std::int64_t num_blocks, std::int32_t max_num_seqs,
                std::shared_ptr<StepTurns> turns = nullptr, double max_step_time_ms = SchedulerOptions::kAutoStepTime) {
    KvLayout layout = model.model->kv_layout();
    layout.num_blocks = num_blocks;
    layout.block_size = KvCacheOptions{}.block_size;
    EngineOptions options;
    options.seed = 1;
    options.turns = std::move(turns);
    options.scheduler.max_num_seqs = max_num_seqs;
    options.scheduler.target_itl_ms = 1e3 * kTargetItl;
    options.scheduler.max_step_time_ms = max_step_time_ms;
    options.queue.max_queued_tokens = 1 << 30;
    engine_ = std::make_unique<Engine>(*model.model, *model.backend, model.backend->allocate_kv(layout),
                                       std::vector<TokenId>{}, options);
    engine_->start();
  }

  Sent submit(std::vector<TokenId> prompt, int max_tokens, int num_choices = 1) {
    auto request = std::make_shared<Request>();
    request->id = std::to_string(num_submitted_++);
    request->prompt = std::move(prompt);
    request->num_choices = num_choices;
    request->sampling.temperature = num_choices > 1 ? 1.0F : 0.0F;
    request->sampling.ignore_eos = true;
    request->sampling.max_tokens = max_tokens;
    request->arrival = Clock::now();
    Sent sent{request->id, std::make_shared<SharedSink>(), request->arrival, num_choices};
    if (const auto accepted = engine_->queue().submit({std::move(request), sent.sink}); !accepted) {
      std::fprintf(stderr, "%s\n", accepted.error().message.c_str());
      std::exit(1);
    }
    return sent;
  }

  void abort(const std::vector<Sent>& all) {
    for (const Sent& sent : all)
      engine_->queue().abort(sent.id);
    for (const Sent& sent : all)
      sent.sink->wait_finished(sent.num_choices);
  }

 private:
  std::unique_ptr<Engine> engine_;
  int num_submitted_ = 0;
};

double first_token(RunningEngine& engine, std::vector<TokenId> prompt) {
  const Sent sent = engine.submit(std::move(prompt), 1);
  sent.sink->wait_finished();
  return seconds_between(sent.at, sent.sink->times().at(0));
}

// Waits until running requests are in the middle of a step, at a different point in each try.
void let_it_run(int attempt) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300 + 37 * attempt % 500));
}

// A ratio that must stay at or below `most`.
void report_ratio(const char* what, double ratio, double most) {
  std::printf("%s: %.2f, must be at most %.2f%s\n", what, ratio, most, ratio <= most ? "" : ": MISSED");
}

void measure_alone(BenchModel& model, int num_long) {
  RunningEngine bounded(model, 4000, 64);
  RunningEngine unbounded(model, 4000, 64, nullptr, 0.0);
  for (RunningEngine* engine : {&bounded, &unbounded})
    first_token(*engine, model.tokens(std::min(3000, num_long / 4), 1));  // teaches the price of a step
  std::vector<double> seconds;
  std::vector<double> without_bound;
  for (int i = 0; i < 3; ++i) {
    seconds.push_back(first_token(bounded, model.tokens(num_long, 10 + i)));
    without_bound.push_back(first_token(unbounded, model.tokens(num_long, 10 + i)));
    std::printf("alone: %.2f s, with unbounded steps %.2f s\n", seconds.back(), without_bound.back());
    std::fflush(stdout);
  }
  std::printf("alone: a prompt of %d tokens takes %.2f s\n", num_long, percentile(seconds, 50));
  report_ratio("alone, times unbounded steps", percentile(seconds, 50) / percentile(without_bound, 50), 1.03);
}

// A long prompt beside small requests that follow each other: its share of the machine is their remainder.
void measure_shared(BenchModel& model, int num_long) {
  RunningEngine engine(model, 6000, 64);
  first_token(engine, model.tokens(3000, 1));
  std::vector<double> ratios;
  int number = 40'000;
  for (int i = 0; i < 3; ++i) {
    const double alone = first_token(engine, model.tokens(num_long, 500 + i));
    std::vector<double> small;
    for (int j = 0; j < 9; ++j)
      small.push_back(first_token(engine, model.tokens(kSmallTokens, number++)));
    const Sent prompt = engine.submit(model.tokens(num_long, 600 + i), 1);
    int num_small = 0;
    for (; prompt.sink->times().empty(); ++num_small)
      first_token(engine, model.tokens(kSmallTokens, number++));
    const double work = alone + num_small * percentile(small, 50);
    ratios.push_back(seconds_between(prompt.at, prompt.sink->times().at(0)) / work);
    std::printf("shared: a prompt of %d tokens beside %d small requests takes %.2f s, alone %.2f s\n", num_long,
                num_small, ratios.back() * work, alone);
  }
  report_ratio("beside small requests, times the work of both", percentile(ratios, 50), 1.15);
}

void report(const char* what, const std::vector<double>& alone, const std::vector<double>& beside) {
  const double bound = percentile(alone, 50) + 3 * kStepBound;
  std::printf("%s: first token of %d tokens: alone %.3f s, beside p50 %.3f, most %.3f s of %.3f allowed, %zu tries\n",
              what, kSmallTokens, percentile(alone, 50), percentile(beside, 50), percentile(beside, 100), bound,
              beside.size());
}

void measure_beside(BenchModel& model, const char* what, std::int32_t max_num_seqs,
                    const std::function<std::vector<Sent>(RunningEngine&, int)>& load) {
  RunningEngine engine(model, 14'000, max_num_seqs);
  first_token(engine, model.tokens(3000, 1));
  std::vector<double> alone;
  std::vector<double> beside;
  for (int i = 0; i < kTries; ++i) {
    alone.push_back(first_token(engine, model.tokens(kSmallTokens, 1000 + i)));
    const std::vector<Sent> others = load(engine, i);
    let_it_run(i);
    beside.push_back(first_token(engine, model.tokens(kSmallTokens, 2000 + i)));
    engine.abort(others);
  }
  report(what, alone, beside);
}

void measure_small(BenchModel& model, int num_long) {
  for (const int count : {1, 4, 16}) {
    const std::string what = "small beside " + std::to_string(count);
    measure_beside(model, what.c_str(), 64, [&](RunningEngine& engine, int attempt) {
      std::vector<Sent> sent;
      for (int i = 0; i < count; ++i)
        sent.push_back(engine.submit(model.tokens(num_long, 10'000 + attempt * 16 + i), 1));
      return sent;
    });
  }
}

void measure_identical(BenchModel& model, int num_long) {
  measure_beside(model, "small behind nine equal", 64, [&](RunningEngine& engine, int attempt) {
    std::vector<Sent> sent;
    for (int i = 0; i < 9; ++i)
      sent.push_back(engine.submit(model.tokens(num_long, 20'000 + attempt), 1));
    return sent;
  });
}

void measure_choices(BenchModel& model, int /*num_long*/) {
  measure_beside(model, "small beside n: 64 in 64 places", 64, [&](RunningEngine& engine, int attempt) {
    std::vector<Sent> sent;
    for (int i = 0; i < 8; ++i)
      sent.push_back(engine.submit(model.tokens(16, 30'000 + attempt * 8 + i), 400));
    sent.push_back(engine.submit(model.tokens(400, 31'000 + attempt), 400, 64));
    return sent;
  });
}

// Between the tokens of streams, in seconds, from `begin` on.
std::vector<double> gaps_after(const std::vector<Sent>& streams, Clock::time_point begin) {
  std::vector<double> gaps;
  for (const Sent& stream : streams) {
    const auto times = stream.sink->times();
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] >= begin) gaps.push_back(seconds_between(times[i - 1], times[i]));
    }
  }
  return gaps;
}

void report_gaps(const char* what, const std::vector<double>& gaps) {
  std::printf("%s: between tokens p50 %.0f, p99 %.0f ms, %zu gaps\n", what, 1e3 * percentile(gaps, 50),
              1e3 * percentile(gaps, 99), gaps.size());
  report_ratio("p99, times the target", percentile(gaps, 99) / kTargetItl, 1.3);
}

void measure_streams(BenchModel& model, int num_long) {
  RunningEngine engine(model, 14'000, 64);
  first_token(engine, model.tokens(3000, 1));
  std::vector<Sent> streams;
  for (int i = 0; i < 8; ++i)
    streams.push_back(engine.submit(model.tokens(16, i), 4000));
  for (const Sent& stream : streams)
    stream.sink->wait_tokens(20);
  const auto alone_from = Clock::now();
  for (const Sent& stream : streams)
    stream.sink->wait_tokens(80);
  std::printf("8 streams alone: between tokens p50 %.0f ms\n", 1e3 * percentile(gaps_after(streams, alone_from), 50));
  const Sent visitor = engine.submit(model.tokens(num_long, 99), 1);
  visitor.sink->wait_finished();
  const auto gaps = gaps_after(streams, visitor.at);
  std::printf("streams: a prompt of %d tokens beside 8 streams takes %.2f s\n", num_long,
              seconds_between(visitor.at, visitor.sink->times().at(0)));
  report_gaps("8 streams beside it", gaps);
  engine.abort(streams);
}

void measure_models(BenchModel& model, int num_long) {
  const auto turns = std::make_shared<StepTurns>();
  RunningEngine prompts(model, 4000, 64, turns);
  RunningEngine streaming(model, 4000, 64, turns);
  first_token(prompts, model.tokens(3000, 1));
  first_token(streaming, model.tokens(3000, 1));
  const Sent stream = streaming.submit(model.tokens(16, 5), 4000);
  stream.sink->wait_tokens(20);
  const Sent visitor = prompts.submit(model.tokens(num_long, 99), 1);
  visitor.sink->wait_finished();
  report_gaps("a stream beside another model's prompt", gaps_after({stream}, visitor.at));
  streaming.abort({stream});
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::pair<std::string, std::function<void(BenchModel&, int)>>> all = {
      {"alone", measure_alone},         {"shared", measure_shared},   {"small", measure_small},
      {"identical", measure_identical}, {"choices", measure_choices}, {"streams", measure_streams},
      {"models", measure_models}};
  if (argc < 2) {
    std::fprintf(stderr, "bench_time MODEL [alone|shared|small|identical|choices|streams|models][:TOKENS]...\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  BenchModel model(argv[1]);
  if (argc == 2) {
    for (const auto& [name, measure] : all)
      measure(model, kLongTokens);
  }
  for (const std::string asked : std::span(argv, static_cast<std::size_t>(argc)).subspan(2)) {
    const std::size_t colon = std::min(asked.find(':'), asked.size());
    const int num_long = colon < asked.size() ? std::stoi(asked.substr(colon + 1)) : kLongTokens;
    for (const auto& [name, measure] : all) {
      if (asked.substr(0, colon) == name) measure(model, num_long);
    }
  }
  return 0;
}
