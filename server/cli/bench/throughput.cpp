#include "server/cli/bench/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>

#include "core/engine/engine.h"
#include "core/model/layers/loaded_model.h"

namespace quire::bench {

namespace {

// Counts the emitted tokens; the bench needs no text.
class CountingSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    num_tokens += static_cast<std::int64_t>(event.tokens.size());
    finished = finished || event.finish.has_value();
  }
  std::int64_t num_tokens = 0;
  bool finished = false;
};

struct Measurement {
  double prompt_seconds = 0;
  double decode_seconds = 0;
  std::int64_t decode_steps = 0;
  std::int64_t decode_tokens = 0;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const ThroughputOptions& options, const LoadedModel& loaded)
      : options_(options),
        info_(loaded.info()),
        backend_(create_backend(options.backend)),
        model_(loaded.build(*backend_, [](auto, auto) {})) {
    const std::int64_t most = *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
    KvLayout layout = model_->kv_layout();
    layout.block_size = KvCacheOptions{}.block_size;
    layout.dtype = options.kv_dtype;
    require_cache(layout, *backend_);
    const std::int64_t per_sequence = (options.prompt_tokens + options.output_tokens) / layout.block_size + 2;
    layout.num_blocks = most * per_sequence + 1;
    EngineOptions engine;
    engine.scheduler.max_num_seqs = static_cast<std::int32_t>(most);
    engine.scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
    engine.kv_cache.enable_prefix_caching = false;
    engine.seed = 1;
    engine_ =
        std::make_unique<Engine>(*model_, *backend_, backend_->allocate_kv(layout), std::vector<TokenId>{}, engine);
  }

  std::string backend_name() const { return backend_->name(); }

  Measurement measure(std::int64_t num_sequences) {
    Sinks sinks;
    for (std::int64_t i = 0; i < num_sequences; ++i) {
      sinks.push_back(std::make_shared<CountingSink>());
      submit(sinks.back());
    }
    kEngineThread.assume();
    Measurement result;
    const auto begin = Clock::now();
    const auto all_started = [&] {
      return std::all_of(sinks.begin(), sinks.end(),
                         [](const auto& sink) { return sink->num_tokens > 0 || sink->finished; });
    };
    while (!all_started())
      engine_->step(Clock::now());
    const auto middle = Clock::now();
    const std::int64_t tokens_before = num_tokens(sinks);
    while (num_finished(sinks) == 0) {
      engine_->step(Clock::now());
      ++result.decode_steps;
    }
    result.prompt_seconds = std::chrono::duration<double>(middle - begin).count();
    result.decode_seconds = std::chrono::duration<double>(Clock::now() - middle).count();
    result.decode_tokens = num_tokens(sinks) - tokens_before;
    while (num_finished(sinks) < num_sequences)
      engine_->step(Clock::now());
    return result;
  }

 private:
  using Sinks = std::vector<std::shared_ptr<CountingSink>>;

  static std::int64_t num_tokens(const Sinks& sinks) {
    return std::accumulate(sinks.begin(), sinks.end(), std::int64_t{0},
                           [](std::int64_t sum, const auto& sink) { return sum + sink->num_tokens; });
  }

  static std::int64_t num_finished(const Sinks& sinks) {
    return std::count_if(sinks.begin(), sinks.end(), [](const auto& sink) { return sink->finished; });
  }

  void submit(const std::shared_ptr<OutputSink>& sink) {
    auto request = std::make_shared<Request>();
    request->id = fmt::format("bench-{}", num_submitted_++);
    std::uniform_int_distribution<std::int32_t> pick(0, static_cast<std::int32_t>(model_->vocab_size()) - 1);
    for (std::int64_t i = 0; i < options_.prompt_tokens; ++i)
      request->prompt.push_back({pick(generator_)});
    request->sampling.temperature = 0;
    request->sampling.ignore_eos = true;
    request->sampling.max_tokens = static_cast<std::int32_t>(options_.output_tokens);
    if (!info_.has_head) request->pooling = info_.pooling;
    request->arrival = Clock::now();
    const auto accepted = engine_->queue().submit({std::move(request), sink});
    if (!accepted) throw StartupError("quire bench throughput: " + accepted.error().message);
  }

  const ThroughputOptions& options_;
  const ModelInfo info_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  std::mt19937_64 generator_{1};
  std::int64_t num_submitted_ = 0;
};

}  // namespace

ThroughputReport run_throughput(const ThroughputOptions& options,
                                const std::function<void(const std::string&)>& progress) {
  progress("loading " + options.model.string());
  const auto loaded = open_model(options.model);
  Bench bench(options, *loaded);
  ThroughputReport report{loaded->info().name, bench.backend_name(), loaded->info().file_bytes, {}};
  for (const std::int64_t num_sequences : options.batch_sizes) {
    std::vector<double> prompt;
    std::vector<double> decode;
    std::vector<double> steps;
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      progress(fmt::format("{} sequences, pass {} of {}", num_sequences, repeat + 1, options.repeats));
      const Measurement measured = bench.measure(num_sequences);
      const auto sequences = static_cast<double>(num_sequences);
      prompt.push_back(sequences * static_cast<double>(options.prompt_tokens) / measured.prompt_seconds);
      // An encoder's run ends with the prompt.
      const double per_second = measured.decode_steps > 0 ? 1.0 / measured.decode_seconds : 0.0;
      decode.push_back(static_cast<double>(measured.decode_tokens) * per_second);
      steps.push_back(static_cast<double>(measured.decode_steps) * per_second);
    }
    report.rows.push_back(
        {num_sequences, median(prompt), median(decode), median(steps) * static_cast<double>(report.file_bytes) * 1e-9});
  }
  return report;
}

}  // namespace quire::bench
