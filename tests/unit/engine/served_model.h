// An engine over a model's file and the CPU backend, stepped by the test itself. One thread at a time.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/layers/drafted_model.h"
#include "core/model/layers/loaded_model.h"
#include "kernels/registry.h"
#include "tests/support/material.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {

inline constexpr const char* kStories = "weights/stories260K-gguf/stories260K.gguf";

struct ServedModel {
  // price: that steps take; absent: the machine's time. drafter: a model that drafts for it.
  ServedModel(const std::filesystem::path& path, std::int64_t num_blocks, const EngineOptions& options,
              const std::optional<StepPrice>& price = {}, const std::filesystem::path& drafter = {})
      : ServedModel(
            open_model(path, true, {.next_tokens = options.speculation.method == SpeculationMethod::kNextTokens}),
            num_blocks, options, price, drafter) {}
  ServedModel(std::shared_ptr<const LoadedModel> opened, std::int64_t num_blocks, const EngineOptions& options,
              const std::optional<StepPrice>& price = {}, const std::filesystem::path& drafter = {})
      : loaded(std::move(opened)),
        backend(create_backend({.device = "cpu", .cpu = {.isa = "auto", .threads = 2, .pin = false}})),
        loaded_drafter(drafter.empty() ? nullptr : open_model(drafter)),
        model(loaded_drafter == nullptr ? loaded->build(*backend, [](auto, auto) {})
                                        : build_with_drafter(*loaded, *loaded_drafter, *backend, [](auto, auto) {})) {
    KvLayout layout = options.num_window_parts > 0 ? model->kv_split().full : model->kv_layout();
    layout.num_blocks = num_blocks;
    layout.block_size = 16;
    layout.dtype = options.kv_cache.dtype;
    engine = std::make_unique<Engine>(
        make_executor(*model, *backend, backend->allocate_kv(layout), options, default_deferred_seed(), {}, price),
        std::vector<TokenId>{}, options);
  }

  std::shared_ptr<KeepingSink> submit(Request request) {
    request.id = std::to_string(num_submitted++);
    request.arrival = Clock::time_point(std::chrono::seconds(num_submitted));
    auto sink = std::make_shared<KeepingSink>(request.num_choices);
    const Result<void> submitted = engine->queue().submit({std::make_shared<const Request>(std::move(request)), sink});
    REQUIRE(submitted);
    return sink;
  }

  void run() {
    kEngineThread.assume();
    while (engine->step(Clock::now())) {
    }
  }

  std::shared_ptr<const LoadedModel> loaded;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const LoadedModel> loaded_drafter;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  int num_submitted = 0;
};

}  // namespace quire::test
