// An engine over the fake model, stepped by the test itself, a sink that keeps what was sent, and a small cache with
// its storage alone. One thread at a time.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/kv/kv_cache.h"
#include "core/kv/moves/lower_tier.h"
#include "tests/support/deferred_executor.h"
#include "tests/support/fake_model.h"
#include "tests/unit/engine/interrupted_executor.h"
#include "tests/unit/engine/sched/priced_device.h"
#include "tests/unit/engine/watched_executor.h"

namespace quire::test {

inline std::vector<BlockId> block_ids(std::initializer_list<int> values) {
  std::vector<BlockId> blocks;
  for (const int value : values)
    blocks.push_back(BlockId{value});
  return blocks;
}

struct ChoiceOutput {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;
  std::vector<float> embedding;
  std::vector<FinishInfo> finishes;  // exactly one unless something is wrong
  std::size_t num_events = 0;
};

class KeepingSink : public OutputSink {
 public:
  explicit KeepingSink(std::int32_t num_choices) : choices(static_cast<std::size_t>(num_choices)) {}
  void send(OutputEvent event) noexcept override {
    ChoiceOutput& choice = choices[static_cast<std::size_t>(event.choice)];
    ++choice.num_events;
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (auto& logprob : event.logprobs)
      choice.logprobs.push_back(std::move(logprob));
    for (auto& logprob : event.prompt_logprobs)
      choice.prompt_logprobs.push_back(std::move(logprob));
    if (!event.embedding.empty()) choice.embedding = std::move(event.embedding);
    if (event.finish) choice.finishes.push_back(*std::move(event.finish));
  }
  bool finished() const {
    for (const ChoiceOutput& choice : choices) {
      if (choice.finishes.empty()) return false;
    }
    return true;
  }
  std::vector<ChoiceOutput> choices;
};

// QUIRE_DEFERRED_SEED: all engines of these tests run on a device that completes late.
inline std::optional<std::uint32_t> default_deferred_seed() {
  const char* seed = std::getenv("QUIRE_DEFERRED_SEED");
  if (seed == nullptr) return std::nullopt;
  return static_cast<std::uint32_t>(std::atoi(seed));
}

inline std::unique_ptr<Executor> make_executor(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                               const EngineOptions& options,
                                               std::optional<std::uint32_t> deferred_seed = default_deferred_seed(),
                                               std::optional<std::uint32_t> interrupt_seed = {},
                                               const std::optional<StepPrice>& price = {},
                                               const OnSubmit& on_submit = {}) {
  auto executor = executor_for(model, backend, std::move(storage), options.scheduler,
                               {.num_states = options.num_states, .num_window_parts = options.num_window_parts});
  if (price) executor = std::make_unique<PricedDevice>(std::move(executor), *price);
  if (interrupt_seed) {
    executor = std::make_unique<InterruptedExecutor>(std::move(executor), *interrupt_seed);
  } else if (deferred_seed) {
    executor = std::make_unique<DeferredExecutor>(std::move(executor), *deferred_seed);
  }
  if (on_submit) executor = std::make_unique<WatchedExecutor>(std::move(executor), on_submit);
  return executor;
}

struct HarnessOptions {
  std::int64_t num_blocks = 64;
  std::int64_t block_size = 4;
  std::int64_t vocab = 64;
  std::int64_t window = 0;  // the model's; engine.num_window_parts limits the cache to it
  std::vector<TokenId> eos = {};
  EngineOptions engine = {};
  std::optional<std::uint32_t> deferred_seed = default_deferred_seed();  // absent: steps are computed at once
  std::optional<std::uint32_t> interrupt_seed = {};                      // steps are ended early; not with the other
  int right_drafts_percent = -1;  // share of the model's own drafts; below zero: none
  DraftsBy drafts_by = DraftsBy::kNextTokens;
  bool recurs = false;                  // the model keeps a recurrent state, too
  std::optional<StepPrice> price = {};  // time of steps; absent: the machine's
  OnSubmit on_submit = {};              // sees each step; what it throws fails there
};

inline std::vector<TokenId> tokens_of(std::initializer_list<int> values) {
  std::vector<TokenId> tokens;
  for (const int value : values)
    tokens.push_back(TokenId{value});
  return tokens;
}

// `count` tokens that differ by `seed`.
inline std::vector<TokenId> made_tokens(int count, int seed, int vocab = 64) {
  std::vector<TokenId> tokens;
  auto state = static_cast<std::uint32_t>(seed) * 2654435761U + 12345U;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    tokens.push_back(TokenId{static_cast<int>(state >> 8) % vocab});
  }
  return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline Request request_of(std::vector<TokenId> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0.0F;
  request.sampling.ignore_eos = true;
  return request;
}

class Harness {
 public:
  explicit Harness(const HarnessOptions& options = {})
      : model(options.vocab, 100'000, options.window, options.right_drafts_percent, options.drafts_by, options.recurs),
        depth(options.deferred_seed && !options.interrupt_seed ? 2 : 1),
        engine(make_executor(model, backend,
                             backend.allocate_kv({.num_layers = 1,
                                                  .num_blocks = options.num_blocks,
                                                  .block_size = options.block_size,
                                                  .num_kv_heads = 1,
                                                  .head_dim = 1}),
                             options.engine, options.deferred_seed, options.interrupt_seed, options.price,
                             options.on_submit),
               options.eos, options.engine) {}

  std::shared_ptr<KeepingSink> submit(Request request) {
    if (request.id.empty()) request.id = "r" + std::to_string(++num_submitted_);
    request.arrival = now + std::chrono::microseconds(num_submitted_);
    auto sink = std::make_shared<KeepingSink>(request.num_choices);
    refused = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
    return sink;
  }

  bool step() {
    kEngineThread.assume();
    now += std::chrono::milliseconds(1);
    return engine.step(now);
  }

  // Steps until no work is left; returns the number of steps.
  int run() {
    int num_steps = 0;
    while (step())
      ++num_steps;
    return num_steps;
  }

  Clock::time_point now{std::chrono::seconds(1000)};
  FakeBackend backend;
  FakeModel model;
  const int depth;  // steps in flight
  Engine engine;
  Result<void> refused;  // result of the last submit

 private:
  int num_submitted_ = 0;
};

// Performs the moves that the tier wants, like an executor with a step.
inline std::vector<BlockMove> do_moves(LowerTier& tier, KvStorage& storage, StateStorage* states = nullptr,
                                       KvStorage* windows = nullptr) {
  std::vector<BlockMove> moves;
  tier.take_moves(moves);
  tier.finish_moves(moves, quire::do_moves(moves, storage, states, windows));
  return moves;
}

// A cache of blocks of four tokens; a block's content is its tokens.
struct SmallCache {
  explicit SmallCache(std::int32_t num_blocks = 6)
      : storage({.num_layers = 1, .num_blocks = num_blocks, .block_size = 4, .num_kv_heads = 1, .head_dim = 1}),
        kv(num_blocks, 4, true) {}
  virtual ~SmallCache() = default;

  FakeStorage storage;
  KvCache kv;

  // Computes a prompt as a model would, and releases it.
  void serve(const std::vector<TokenId>& tokens, WhenEvicted when_evicted = WhenEvicted::kOffered) {
    BlockTable table;
    std::vector<BlockCopy> copies;
    const auto count = static_cast<std::int64_t>(tokens.size());
    kv.open(table, "");
    if (!kv.admit(table, kv.match(table, tokens, count - 1), count, copies)) throw std::runtime_error("no room");
    before_computing();
    for (std::size_t i = 0; i < tokens.size(); ++i)
      storage.tokens[slot(table, i)] = tokens[i].value;
    kv.commit(table, tokens, count);
    kv.release(table, tokens, count, when_evicted);
    kv.close(table);
  }

  virtual void before_computing() {}

  static std::size_t slot(const BlockTable& table, std::size_t position) {
    return static_cast<std::size_t>(table.blocks[position / 4].value) * 4 + position % 4;
  }
};

}  // namespace quire::test
