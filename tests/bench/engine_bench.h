// An engine over a real model and the CPU backend, stepped by the benchmark itself, and sinks that keep tokens and
// times. One thread at a time: the caller's thread becomes the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/layers/drafted_model.h"
#include "core/model/layers/loaded_model.h"
#include "kernels/registry.h"

namespace quire::bench {

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

inline double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0.0;
  const auto rank = static_cast<std::size_t>(percent / 100.0 * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
  return values[rank];
}

class TimingSink final : public OutputSink {
 public:
  void send(OutputEvent event) noexcept override {
    for (const TokenId token : event.tokens) {
      tokens.push_back(token);
      times.push_back(Clock::now());
    }
    if (event.finish) finish = std::move(event.finish);
  }
  double first_after(Clock::time_point begin) const { return seconds_between(begin, times.at(0)); }

  std::vector<TokenId> tokens;
  std::vector<Clock::time_point> times;
  std::optional<FinishInfo> finish;
};

// A model in memory; engines of different settings take turns on it.
class BenchModel {
 public:
  // drafter: a model that drafts for it; empty: none.
  explicit BenchModel(const std::filesystem::path& path, bool next_tokens = false,
                      const std::filesystem::path& drafter = {})
      : loaded_(open_model(path, true, {.next_tokens = next_tokens})),
        loaded_drafter_(open_drafter(*loaded_, path, drafter)),
        backend(create_backend({})),
        model(loaded_drafter_ == nullptr
                  ? loaded_->build(*backend, [](auto, auto) {})
                  : build_with_drafter(*loaded_, *loaded_drafter_, *backend, [](auto, auto) {})) {}

  std::vector<TokenId> encode(const std::string& text) const { return loaded_->tokenizer()->encode(text, true, true); }
  std::vector<TokenId> tokens(int count, int seed) const {
    std::vector<TokenId> made;
    auto state = static_cast<std::uint32_t>(seed) * 2654435761U + 12345U;
    const auto vocab = static_cast<std::uint32_t>(model->vocab_size());
    for (int i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      made.push_back(TokenId{static_cast<std::int32_t>((state >> 8) % vocab)});
    }
    return made;
  }

 private:
  std::shared_ptr<const LoadedModel> loaded_;
  std::shared_ptr<const LoadedModel> loaded_drafter_;  // null: none

 public:
  const std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;  // model on this backend
};

class BenchEngine {
 public:
  BenchEngine(BenchModel& model, std::int64_t num_blocks, const EngineOptions& options) {
    KvLayout layout = model.model->kv_layout();
    layout.num_blocks = num_blocks;
    layout.block_size = KvCacheOptions{}.block_size;
    EngineOptions seeded = options;
    seeded.seed = 1;
    engine = std::make_unique<Engine>(*model.model, *model.backend, model.backend->allocate_kv(layout),
                                      std::vector<TokenId>{}, seeded);
  }

  std::shared_ptr<TimingSink> submit(std::vector<TokenId> prompt, int max_tokens, const std::string& key = "",
                                     std::shared_ptr<const Grammar> grammar = nullptr) {
    auto request = std::make_shared<Request>();
    request->id = std::to_string(num_submitted_++);
    request->prompt = std::move(prompt);
    request->sampling.temperature = 0.0F;
    request->sampling.ignore_eos = true;
    request->sampling.max_tokens = max_tokens;
    request->key_name = key;
    request->grammar = std::move(grammar);
    request->arrival = Clock::now();
    auto sink = std::make_shared<TimingSink>();
    sink->tokens.reserve(static_cast<std::size_t>(max_tokens) + 1);
    sink->times.reserve(static_cast<std::size_t>(max_tokens) + 1);
    if (const auto accepted = engine->queue().submit({std::move(request), sink}); !accepted) {
      std::fprintf(stderr, "%s\n", accepted.error().message.c_str());
      std::exit(1);
    }
    return sink;
  }

  bool step() {
    kEngineThread.assume();
    return engine->step(Clock::now());
  }
  // Steps until no work is left; returns the seconds it took.
  double run() {
    const auto began = Clock::now();
    while (step()) {
    }
    return seconds_between(began, Clock::now());
  }

  std::unique_ptr<Engine> engine;

 private:
  int num_submitted_ = 0;
};

}  // namespace quire::bench
