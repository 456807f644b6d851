// The engine over several emulated devices: streams that share a small pool, with blocks swapped to host memory,
// generate the same text as alone; a failing device fails its requests.
#include <catch2/catch.hpp>

#include "tests/parallel/emulated_ranks.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {
namespace {

struct ServedRanks {
  ServedRanks(const LoadedModel& loaded, std::unique_ptr<Backend> made, std::int64_t num_blocks,
              const EngineOptions& options)
      : backend(std::move(made)), model(loaded.build(*backend, {})) {
    KvLayout layout = model->kv_layout();
    layout.num_blocks = num_blocks;
    engine = std::make_unique<Engine>(make_executor(*model, *backend, backend->allocate_kv(layout), options, {}),
                                      std::vector<TokenId>{}, options);
  }

  std::shared_ptr<KeepingSink> submit(Request request) {
    request.id = std::to_string(num_submitted++);
    auto sink = std::make_shared<KeepingSink>(request.num_choices);
    const auto taken = engine->queue().submit({std::make_shared<const Request>(std::move(request)), sink});
    REQUIRE(taken);
    return sink;
  }
  void run() {
    kEngineThread.assume();
    while (engine->step(Clock::now())) {
    }
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  int num_submitted = 0;
};

Request stream(int i) {
  Request request = request_of(made_tokens(5 + 7 * (i % 3), i, 380), 40 + i);
  request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
  request.sampling.seed = static_cast<std::uint64_t>(i);
  return request;
}

}  // namespace

TEST_CASE("streams on two devices say in a small pool, swapped and preempted, what each says alone", "[parallel]") {
  constexpr int kStreams = 8;
  const auto loaded = emulated_model("tiny-llama", "Q8_0");
  std::vector<std::vector<TokenId>> expected;
  {
    ServedRanks single(*loaded, emulated_ranks(rank_options(2, 1)), 24, {});
    for (int i = 0; i < kStreams; ++i) {
      const auto sink = single.submit(stream(i));
      single.run();
      expected.push_back(sink->choices[0].tokens);
    }
  }
  EngineOptions options;
  options.kv_cache.host_tier_bytes = 8 << 20;
  options.scheduler.preemption = Preemption::kSwap;
  options.scheduler.max_num_batched_tokens = 24;  // prompts are cut
  ServedRanks crowded(*loaded, emulated_ranks(rank_options(2, 4)), 12, options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < kStreams; ++i)
    sinks.push_back(crowded.submit(stream(i)));
  crowded.run();
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    INFO("stream " << i);
    CHECK(sinks[i]->choices[0].tokens == expected[i]);
  }
  CHECK(crowded.engine->stats().num_preemptions > 0);
  CHECK(crowded.engine->stats().num_swaps > 0);
  CHECK(crowded.engine->stats().num_blocks_used == 0);
}

TEST_CASE("a device that fails while two serve ends their requests with an error", "[parallel]") {
  const auto loaded = emulated_model("tiny-llama", "Q8_0");
  auto devices = rank_options(2, 1);
  devices[1].failing_launch = 60;
  ServedRanks served(*loaded, emulated_ranks(devices), 24, {});
  const auto sink = served.submit(stream(0));
  served.run();
  REQUIRE(sink->finished());
  CHECK(sink->choices[0].finishes.size() == 1);
  CHECK(sink->choices[0].finishes[0].reason == FinishReason::kError);
  CHECK(sink->choices[0].tokens.size() < 20);
}

}  // namespace quire::test
