#include "server/cli/bench/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "core/executor/step_input.h"
#include "core/model/layers/loaded_model.h"

namespace quire::bench {

namespace {

constexpr std::int64_t kStepsBlockSize = 16;

// Sequences of one step, with blocks of their own; the blocks' content does not change the cost.
class StepsBench {
 public:
  StepsBench(const StepsOptions& options, const LoadedModel& loaded)
      : backend_(create_backend(options.backend)),
        model_(loaded.build(*backend_, [](auto, auto) {})),
        max_context_(std::min(options.max_context, model_->max_context())),
        blocks_each_(max_context_ / kStepsBlockSize + 2),
        repeats_(options.repeats),
        input_(kStepsBlockSize, options.max_prompt + options.max_streams, options.max_streams + 1, 0) {
    KvLayout layout = model_->kv_layout();
    layout.block_size = kStepsBlockSize;
    layout.dtype = options.kv_dtype;
    require_cache(layout, *backend_);
    layout.num_blocks = (options.max_streams + 1) * blocks_each_;
    storage_ = backend_->allocate_kv(layout);
    model_->reserve(options.max_prompt + options.max_streams, options.max_streams + 1);
  }

  std::string backend_name() const { return backend_->name(); }
  std::int64_t max_context() const { return max_context_; }

  // Measures streams with a context of `context` tokens each, and a chunk of a prompt after its first `before` tokens.
  sim::MeasuredStep measure(std::int64_t num_streams, std::int64_t context, std::int64_t chunk, std::int64_t before) {
    sequences_.clear();
    input_.clear();
    for (std::int64_t i = 0; i < num_streams; ++i)
      add(context, 1);
    if (chunk > 0) add(before, chunk);
    sim::MeasuredStep step;
    for (std::int64_t i = 0; i < num_streams; ++i)
      step.terms.add_stream(context);
    step.terms.add_prompt(before, chunk);
    compute();  // touches the pages of blocks and buffers for the first time
    std::vector<double> seconds;
    for (int i = 0; i < repeats_; ++i)
      seconds.push_back(compute());
    std::ranges::nth_element(seconds, seconds.begin() + repeats_ / 2);
    step.seconds = seconds[static_cast<std::size_t>(repeats_ / 2)];
    return step;
  }

 private:
  // Returns seconds.
  double compute() {
    const auto began = Clock::now();
    model_->forward(input_.arrays(1), *storage_);
    backend_->synchronize();
    return std::chrono::duration<double>(Clock::now() - began).count();
  }

  void add(std::int64_t num_computed, std::int64_t num_tokens) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.request = request_;
    const auto first = static_cast<std::int32_t>(static_cast<std::int64_t>(sequences_.size() - 1) * blocks_each_);
    for (std::int32_t i = 0; i < blocks_each_; ++i)
      sequence.table.blocks.push_back(BlockId{first + i});
    const auto vocab = static_cast<std::int32_t>(model_->vocab_size());
    for (std::int64_t i = 0; i < num_computed + num_tokens; ++i)
      sequence.tokens.push_back(TokenId{static_cast<std::int32_t>(i * 31 % vocab)});
    sequence.num_computed = num_computed;
    input_.add({&sequence, num_tokens}, {.first = num_tokens - 1, .count = 1}, 0);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  const std::int64_t max_context_;
  const std::int64_t blocks_each_;
  const int repeats_;
  std::unique_ptr<KvStorage> storage_;
  const std::shared_ptr<const Request> request_ = std::make_shared<Request>();
  std::deque<Sequence> sequences_;
  StepInput input_;
};

}  // namespace

StepsReport run_steps(const StepsOptions& options, const std::function<void(const std::string&)>& progress) {
  progress("loading " + options.model.string());
  const auto loaded = open_model(options.model);
  StepsBench bench(options, *loaded);
  StepsReport report{loaded->info().name, bench.backend_name(), {}};
  const std::int64_t longest = bench.max_context() - options.max_prompt;
  const auto measure = [&](std::int64_t num_streams, std::int64_t context, std::int64_t chunk, std::int64_t before) {
    progress(fmt::format("{} streams of {} tokens, a chunk of {} after {}", num_streams, context, chunk, before));
    report.steps.push_back(bench.measure(num_streams, context, chunk, before));
  };
  for (std::int64_t num_streams = 1; num_streams <= options.max_streams; num_streams *= 2) {
    for (const std::int64_t context : {std::int64_t{64}, std::max<std::int64_t>(longest, 64)})
      measure(num_streams, context, 0, 0);
  }
  for (std::int64_t chunk = 16; chunk <= options.max_prompt; chunk *= 4) {
    for (const std::int64_t before : {std::int64_t{0}, std::max<std::int64_t>(longest, 0)}) {
      measure(0, 0, chunk, before);
      measure(std::min<std::int64_t>(8, options.max_streams), 64, chunk, before);
    }
  }
  return report;
}

}  // namespace quire::bench
