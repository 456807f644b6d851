// The engine over the GPU backend with two steps in flight: random requests give the same text as with one step at a
// time, and as on the CPU.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "core/executor/cpu_executor.h"
#include "core/executor/device_executor.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/memory_plan.h"
#include "core/model/tools/synth.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {
namespace {

using gpu::EmulatedDeviceOptions;

constexpr int kVocab = 512;

// A small model of random quantised weights, made once.
const std::filesystem::path& small_model(const std::string& shape = "tiny-qwen3") {
  static const TemporaryFolder kFolder;
  static std::map<std::string, std::filesystem::path> made;
  std::filesystem::path& path = made[shape];
  if (!path.empty()) return path;
  path = kFolder / (shape + ".gguf");
  SynthSpec spec = *find_synth_shape(shape);
  spec.types = *find_synth_types("Q8_0");
  write_synthetic_gguf(spec, path, {});
  return path;
}

// Allows some tokens after each one, and forces one now and then.
class StridingGrammar final : public Grammar {
 public:
  explicit StridingGrammar(int stride) : stride_(stride) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(stride_); }

 private:
  class State final : public GrammarState {
   public:
    explicit State(int stride) : stride_(stride) {}
    void assign(const GrammarState& other) override { *this = static_cast<const State&>(other); }
    void fill_mask(std::span<std::uint32_t> mask) override {
      std::ranges::fill(mask, 0U);
      for (int token = 0; token < kVocab; ++token) {
        if (allows(token)) mask[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
      }
    }
    bool accept(TokenId token) override {
      if (!allows(token.value)) return false;
      last_ = token.value;
      ++num_accepted_;
      return true;
    }
    bool finished() const override { return num_accepted_ >= 17; }
    std::span<const TokenId> forced_tokens() override {
      forced_ = TokenId{(last_ * 7 + 3) % kVocab};
      const bool forces = num_accepted_ % 5 == 3 && allows(forced_.value);
      return {&forced_, forces ? std::size_t{1} : std::size_t{0}};
    }

   private:
    bool allows(int token) const { return token % stride_ == last_ % stride_ || token % 13 == 0; }
    int stride_;
    int last_ = 1;
    int num_accepted_ = 0;
    TokenId forced_{0};
  };
  int stride_;
};

struct ServedOptions {
  enum class By : std::uint8_t { kProcessor, kOneStep, kTwoSteps };
  By by = By::kTwoSteps;
  std::string shape = "tiny-qwen3";
  EmulatedDeviceOptions device = {};
  bool graphs = true;
  std::int64_t num_blocks = 200;
  EngineOptions engine = {};
};

// An engine over the small model, stepped by the test.
class Served {
 public:
  explicit Served(const ServedOptions& options)
      : loaded_(open_model(small_model(options.shape))),
        backend_(backend(options)),
        model_(loaded_->build(*backend_, [](auto, auto) {})),
        engine_(executor(options), {TokenId{2}}, options.engine) {}

  std::shared_ptr<KeepingSink> submit(Request request) {
    auto sink = std::make_shared<KeepingSink>(request.num_choices);
    request.arrival = Clock::time_point(std::chrono::microseconds(++num_submitted_));
    const auto taken = engine_.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
    REQUIRE(taken);
    return sink;
  }
  bool step() {
    kEngineThread.assume();
    return engine_.step(Clock::now());
  }
  void abort(const std::string& id) { engine_.queue().abort(id, std::nullopt); }
  EngineStats stats() const { return engine_.stats(); }
  const gpu::EmulatedDevice& device() const { return *device_; }

 private:
  std::unique_ptr<Backend> backend(const ServedOptions& options) {
    if (options.by == ServedOptions::By::kProcessor)
      return create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
    auto device = std::make_unique<gpu::EmulatedDevice>(options.device);
    device_ = device.get();
    return gpu::make_gpu_backend(std::move(device), {.graphs = options.graphs});
  }
  std::unique_ptr<Executor> executor(const ServedOptions& options) {
    KvLayout layout = model_->kv_layout();
    layout.num_blocks = options.num_blocks;
    layout.block_size = 16;
    layout.dtype = options.engine.kv_cache.dtype;
    auto storage = backend_->allocate_kv(layout);
    const SchedulerOptions& scheduler = options.engine.scheduler;
    if (options.by == ServedOptions::By::kOneStep)
      return make_cpu_executor(*model_, *backend_, std::move(storage), scheduler);
    auto out = executor_for(*model_, *backend_, std::move(storage), scheduler);
    REQUIRE(out->depth() == (options.by == ServedOptions::By::kProcessor ? 1 : 2));
    return out;
  }

  std::shared_ptr<const LoadedModel> loaded_;
  gpu::EmulatedDevice* device_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Engine engine_;
  int num_submitted_ = 0;
};

class RequestMaker {
 public:
  explicit RequestMaker(std::uint32_t seed) : random_(seed) {}
  bool one_in(int n) { return below(n) == 0; }
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint32_t>(bound)); }

  Request make(int number) {
    Request request;
    request.id = "r" + std::to_string(number);
    request.prompt = made_tokens(1 + below(40), below(4), kVocab);
    if (one_in(2)) request.prompt.push_back(token());
    read(request.sampling);
    if (one_in(4)) request.num_choices = 2 + below(2);
    if (one_in(3)) request.grammar = std::make_shared<StridingGrammar>(3 + below(5));
    return request;
  }

 private:
  TokenId token() { return TokenId{below(kVocab)}; }
  void read(SamplingParams& sampling) {
    sampling.max_tokens = 1 + below(20);
    sampling.temperature = one_in(3) ? 0.0F : 0.4F + 0.3F * static_cast<float>(below(5));
    sampling.seed = static_cast<std::uint64_t>(below(9));
    sampling.ignore_eos = one_in(2);
    if (one_in(3)) sampling.top_k = 1 + below(30);
    if (one_in(3)) sampling.top_p = 0.8F;
    if (one_in(5)) sampling.min_p = 0.02F;
    if (one_in(4)) sampling.repetition_penalty = 1.2F;
    if (one_in(4)) sampling.frequency_penalty = 0.5F;
    if (one_in(4)) sampling.logit_bias = {{token(), 2.0F}, {token(), -100.0F}};
    if (one_in(4)) sampling.min_tokens = below(8);
    if (one_in(3)) sampling.num_logprobs = one_in(4) ? 25 : below(6);
    if (one_in(4)) sampling.num_prompt_logprobs = one_in(4) ? 23 : below(4);
    // Drawn by the host.
    if (one_in(8)) sampling.typical_p = 0.9F;
    if (one_in(8)) sampling.xtc_probability = 0.5F;
    if (one_in(8)) sampling.dry.multiplier = 0.8F;
    if (one_in(8)) sampling.mirostat = {.version = 2, .tau = 4.0F, .eta = 0.1F};
  }

  std::mt19937 random_;
};

std::vector<Request> made_requests(std::uint32_t seed, int count) {
  RequestMaker maker(seed);
  std::vector<Request> out;
  for (int i = 0; i < count; ++i)
    out.push_back(maker.make(i));
  return out;
}

using Sinks = std::vector<std::shared_ptr<KeepingSink>>;

// Serves all at once, or one after the other.
Sinks serve(Served& served, const std::vector<Request>& requests, bool alone) {
  Sinks out;
  for (const Request& request : requests) {
    out.push_back(served.submit(request));
    while (alone && served.step()) {
    }
  }
  while (served.step()) {
  }
  return out;
}

void compare(const TokenLogprob& got, const TokenLogprob& expected) {
  CHECK(got.token == expected.token);
  CHECK(got.logprob == expected.logprob);
  CHECK(got.top == expected.top);
}

void compare(const ChoiceOutput& got, const ChoiceOutput& expected) {
  REQUIRE(got.finishes.size() == 1);
  REQUIRE(expected.finishes.size() == 1);
  if (got.finishes[0].reason == FinishReason::kAbort) {
    REQUIRE(got.tokens.size() <= expected.tokens.size());
    CHECK(std::equal(got.tokens.begin(), got.tokens.end(), expected.tokens.begin()));
    return;
  }
  CHECK(got.tokens == expected.tokens);
  CHECK(got.finishes[0].reason == expected.finishes[0].reason);
  REQUIRE(got.logprobs.size() == expected.logprobs.size());
  for (std::size_t i = 0; i < got.logprobs.size(); ++i)
    compare(got.logprobs[i], expected.logprobs[i]);
  REQUIRE(got.prompt_logprobs.size() == expected.prompt_logprobs.size());
  for (std::size_t i = 0; i < got.prompt_logprobs.size(); ++i) {
    REQUIRE(got.prompt_logprobs[i].has_value() == expected.prompt_logprobs[i].has_value());
    if (got.prompt_logprobs[i]) compare(*got.prompt_logprobs[i], *expected.prompt_logprobs[i]);
  }
}

void compare(const std::vector<Request>& requests, const Sinks& got, const Sinks& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (std::size_t choice = 0; choice < got[i]->choices.size(); ++choice) {
      INFO("request " << requests[i].id << ", choice " << choice);
      compare(got[i]->choices[choice], expected[i]->choices[choice]);
    }
  }
}

}  // namespace

namespace {

void check_crowded(std::initializer_list<std::uint64_t> seeds) {
  const std::vector<Request> requests = made_requests(1, 10);
  Served one({.by = ServedOptions::By::kOneStep, .device = {.immediate = true}});
  const Sinks expected = serve(one, requests, true);
  for (const std::uint64_t seed : seeds) {
    ServedOptions crowded{.device = {.seed = seed}, .num_blocks = 24};
    crowded.engine.scheduler.max_num_seqs = 6;
    crowded.engine.scheduler.max_num_batched_tokens = 40;
    Served two(crowded);
    compare(requests, serve(two, requests, false), expected);
    CHECK(two.stats().num_blocks_used == 0);
    CHECK(two.stats().num_preemptions > 0);
  }
}

}  // namespace

TEST_CASE("random requests on the GPU with two steps in flight say what they say with one at a time") {
  check_crowded({5});
}

TEST_CASE("random requests on the GPU with two steps in flight say so on a device in order, too", "[.long]") {
  check_crowded({0});
}

TEST_CASE("a step that decodes is one copy of arrays and one graph, and says what it says without graphs") {
  std::vector<Request> requests = made_requests(7, 4);
  for (Request& request : requests) {
    request.grammar = nullptr;
    request.num_choices = 1;
    request.sampling = {};
    request.sampling.temperature = 0.0F;
    request.sampling.max_tokens = 40;
    request.sampling.ignore_eos = true;
  }
  Served without({.graphs = false});
  const Sinks expected = serve(without, requests, false);
  CHECK(without.device().num_graph_launches() == 0);
  Served with({});
  Sinks sinks;
  for (const Request& request : requests)
    sinks.push_back(with.submit(request));
  std::int64_t num_decodes = 0;
  std::int64_t graphs = 0;
  std::int64_t copies = with.device().num_copies_in();
  while (with.step()) {
    const bool decodes = with.device().num_graph_launches() > graphs;
    // The arrays of the pass, and those of the draws of a step.
    if (decodes) CHECK(with.device().num_copies_in() - copies <= 2);
    num_decodes += decodes ? 1 : 0;
    graphs = with.device().num_graph_launches();
    copies = with.device().num_copies_in();
  }
  CHECK(num_decodes >= 38);
  CHECK(graphs == num_decodes);
  compare(requests, sinks, expected);
}

TEST_CASE("a graph that keeps old arguments is found") {
  const std::vector<Request> requests = made_requests(1, 4);
  Served right({});
  Served wrong({.device = {.ignore_updates = true}});
  const Sinks expected = serve(right, requests, false);
  const Sinks got = serve(wrong, requests, false);
  const bool differ = !std::ranges::equal(got, expected, [](const auto& one, const auto& other) {
    return std::ranges::equal(one->choices, other->choices, {}, &ChoiceOutput::tokens, &ChoiceOutput::tokens);
  });
  CHECK(differ);
}

namespace {

// Six sequences in a pool for three, of which some are swapped.
void check_swapped(const std::string& shape) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_of(made_tokens(30 + i, 10 + i, kVocab), 36));
    requests.back().id = std::to_string(i);
    requests.back().sampling.temperature = 0.9F;
    requests.back().sampling.seed = static_cast<std::uint64_t>(i);
  }
  Served one({.by = ServedOptions::By::kOneStep, .shape = shape, .device = {.immediate = true}});
  const Sinks expected = serve(one, requests, true);
  ServedOptions crowded{.shape = shape, .device = {.seed = 3}, .num_blocks = 10};
  crowded.engine.scheduler.max_num_seqs = 4;
  crowded.engine.scheduler.preemption = Preemption::kSwap;
  crowded.engine.kv_cache.host_tier_bytes = 8 << 20;
  Served two(crowded);
  compare(requests, serve(two, requests, false), expected);
  CHECK(two.stats().num_swaps > 0);
  CHECK(two.stats().num_blocks_restored > 0);
  CHECK(two.stats().num_blocks_used == 0);
}

}  // namespace

TEST_CASE("sequences that are swapped to the host beside two steps in flight on the GPU go on as if they had stayed",
          "[.long]") {
  check_swapped("tiny-qwen3");
}

TEST_CASE("sequences with recurrent states are swapped to the host beside two steps in flight on the GPU") {
  check_swapped("tiny-qwen35");
}

namespace {

void check_planned(KvDType dtype) {
  ServedOptions options;
  options.engine.scheduler.max_num_seqs = 12;
  options.engine.scheduler.max_num_batched_tokens = 600;
  options.engine.scheduler.max_model_len = 700;
  options.engine.kv_cache.dtype = dtype;
  const auto loaded = open_model(small_model());
  const auto any = gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(EmulatedDeviceOptions{}), {});
  const MemoryNeeds needs = memory_needs(*loaded, *any, options.engine.kv_cache, {12, 600, 700});
  KvCacheOptions pool = options.engine.kv_cache;
  pool.num_blocks = 150;
  const MemoryPlan plan = plan_memory(needs, pool, {.available = std::uint64_t{1} << 40, .limited_by = "GPU 0"});
  options.num_blocks = plan.num_blocks;
  options.device.memory = plan.total_bytes() - device_step_bytes({.block_size = 16}).on_device;  // code, graphs
  Served planned(options);
  std::vector<Request> requests = made_requests(8, 12);
  for (Request& request : requests) {
    request.sampling.num_logprobs = 5;
    request.sampling.max_tokens = 4;
  }
  requests[3].prompt = made_tokens(640, 5, kVocab);
  for (const auto& sink : serve(planned, requests, false)) {
    for (const ChoiceOutput& choice : sink->choices)
      CHECK(choice.finishes.at(0).error == nullptr);
  }
  CHECK(planned.device().free_memory() < options.device.memory / 2);
}

}  // namespace

TEST_CASE("a GPU with the memory of the plan serves the largest steps") {
  check_planned(KvDType::kI8);
}

TEST_CASE("a GPU with the memory of the plan serves the largest steps with a cache of f16", "[.long]") {
  check_planned(KvDType::kF16);
}

TEST_CASE("random requests on the GPU draw the tokens that the processor draws") {
  std::vector<Request> requests = made_requests(2, 12);
  Served processor({.by = ServedOptions::By::kProcessor});
  const Sinks expected = serve(processor, requests, true);
  Served two({});
  const Sinks got = serve(two, requests, false);
  for (std::size_t i = 0; i < got.size(); ++i) {
    for (std::size_t choice = 0; choice < got[i]->choices.size(); ++choice) {
      INFO("request " << requests[i].id << ", choice " << choice);
      CHECK(got[i]->choices[choice].tokens == expected[i]->choices[choice].tokens);
    }
  }
}

TEST_CASE("requests that are aborted with two steps in flight on the GPU change no other text, and free their blocks") {
  const std::vector<Request> requests = made_requests(3, 9);
  Served one({.by = ServedOptions::By::kOneStep, .device = {.immediate = true}});
  const Sinks expected = serve(one, requests, true);
  RequestMaker chance(4);
  ServedOptions options{.device = {.seed = 2}, .num_blocks = 30};
  options.engine.scheduler.max_num_seqs = 5;
  Served two(options);
  Sinks sinks;
  for (const Request& request : requests) {
    sinks.push_back(two.submit(request));
    if (chance.one_in(2)) two.step();
    if (chance.one_in(3)) two.abort("r" + std::to_string(chance.below(static_cast<int>(sinks.size()))));
  }
  while (two.step()) {
  }
  compare(requests, sinks, expected);
  CHECK(two.stats().num_blocks_used == 0);
}

TEST_CASE("a GPU that fails with two steps in flight ends every request with the device's error") {
  const std::vector<Request> requests = made_requests(5, 6);
  for (const int launch : {0, 200, 400}) {
    INFO("launch " << launch);
    Served two({.device = {.failing_launch = launch}});
    Sinks sinks;
    for (const Request& request : requests)
      sinks.push_back(two.submit(request));
    while (two.step()) {
    }
    int num_failed = 0;
    for (const auto& sink : sinks) {
      REQUIRE(sink->finished());
      for (const ChoiceOutput& choice : sink->choices) {
        if (choice.finishes[0].error == nullptr) continue;
        CHECK(choice.finishes[0].error->code == "device_failed");
        ++num_failed;
      }
    }
    CHECK(num_failed > 0);
  }
}

}  // namespace quire::test
