// A model with windows and recurrent states: it keeps both in the pool and in every tier, and its texts stay the same.
#include <catch2/catch.hpp>

#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/fake_store.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kSeen = 12;

HarnessOptions with_both(std::int64_t num_blocks) {
  HarnessOptions options{.num_blocks = num_blocks, .window = kSeen, .recurs = true};
  options.engine.identity.model.files = "both";
  options.engine.num_window_parts = std::min(num_blocks, WindowPool::least_parts(kSeen, options.block_size) + 8);
  options.engine.num_states = 10;
  options.engine.scheduler.max_num_seqs = 4;
  return options;
}

// Answers by models that share nothing and keep the windows of all tokens.
std::vector<std::vector<TokenId>> answers_alone(const Request& request) {
  HarnessOptions options{.num_blocks = 200, .window = kSeen, .recurs = true};
  options.engine.kv_cache.enable_prefix_caching = false;
  Harness harness(options);
  const auto sink = harness.submit(request);
  harness.run();
  std::vector<std::vector<TokenId>> answers;
  for (const auto& choice : sink->choices)
    answers.push_back(choice.tokens);
  return answers;
}

void check_same(const KeepingSink& got, const Request& request) {
  const auto expected = answers_alone(request);
  REQUIRE(got.choices.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(got.choices[i].tokens == expected[i]);
}

Request first_turn(int i) {
  Request request = request_of(joined(made_tokens(i % 2 == 0 ? 20 : 4, i % 3), made_tokens(10 + 5 * (i % 4), i)), 12);
  request.num_choices = i == 4 ? 3 : 1;
  request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
  request.sampling.seed = static_cast<std::uint64_t>(i) + 1;
  return request;
}

// Asks and checks the answer; the tokens that were found.
std::int64_t ask(Harness& harness, const Request& request) {
  const auto sink = harness.submit(request);
  harness.run();
  check_same(*sink, request);
  CHECK(harness.model.num_wrong_states == 0);
  return sink->choices[0].finishes.at(0).num_cached_tokens;
}

std::vector<TokenId> history(const Request& request) {
  return joined(joined(request.prompt, answers_alone(request).front()), made_tokens(3, 99));
}

}  // namespace

TEST_CASE("windows and states in a small pool: preempted, forked, continued, and swapped", "[engine][window][states]") {
  HarnessOptions options = with_both(24);
  options.engine.scheduler.max_num_batched_tokens = 16;
  if (GENERATE(false, true)) options.engine.kv_cache.host_tier_bytes = 1 << 20;
  Harness harness(options);
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i)
    requests.push_back(first_turn(i));
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const Request& request : requests)
      sinks.push_back(harness.submit(request));
    harness.run();
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      INFO("round " << round << ", request " << i);
      check_same(*sinks[i], requests[i]);
    }
    for (Request& request : requests)
      request.prompt = history(request);
  }
  CHECK(harness.model.num_wrong_states == 0);
  CHECK(harness.engine.stats().num_preemptions > 0);
  CHECK(harness.engine.stats().prefix_cache_hits > 0);
  CHECK(harness.engine.stats().num_blocks_used == 0);
  CHECK(harness.engine.stats().num_parts_used == 0);
}

TEST_CASE("windows and states come back from host memory", "[engine][tier][window][states]") {
  HarnessOptions options = with_both(30);
  options.engine.kv_cache.host_tier_bytes = 1 << 20;
  Harness harness(options);
  Request request = request_of(made_tokens(90, 1), 6);
  CHECK(ask(harness, request) == 0);
  for (int i = 0; i < 6; ++i)  // takes the pool, its parts and its states
    ask(harness, request_of(made_tokens(70, 10 + i), 4));
  request.prompt = history(request);
  CHECK(ask(harness, request) >= 56);
  CHECK(harness.engine.stats().num_blocks_restored > 0);
}

TEST_CASE("windows and states go to another process by the shared store", "[engine][tier][shared][window][states]") {
  auto records = std::make_shared<StoredRecords>();
  const auto make = [&] {
    HarnessOptions options = with_both(40);
    options.engine.shared_store = [&](const std::function<void()>&) { return std::make_unique<FakeStore>(records); };
    return options;
  };
  Request request = request_of(made_tokens(90, 1), 6);
  Harness first(make());
  CHECK(ask(first, request) == 0);
  first.run();
  Harness second(make());
  request.prompt.resize(80);
  CHECK(ask(second, request) >= 56);
}

TEST_CASE("a saved slot has windows and states", "[engine][slots][window][states]") {
  HarnessOptions options = with_both(40);
  options.engine.keeps_slots = true;
  Request request = request_of(made_tokens(90, 1), 6);
  request.slot = 0;
  const auto order = [](Harness& harness, SlotOrder wanted) {
    std::optional<Result<KeptChain>> answer;
    wanted.slot = 0;
    wanted.max_bytes = 1 << 20;
    wanted.done = std::make_shared<const std::function<void(Result<KeptChain>)>>(
        [&](Result<KeptChain> result) { answer.emplace(std::move(result)); });
    harness.engine.order_slot(std::move(wanted));
    for (int i = 0; i < 100 && !answer; ++i)
      harness.step();
    REQUIRE(answer);
    REQUIRE(answer->has_value());
    return std::move(**answer);
  };
  Harness saved(options);
  ask(saved, request);
  KeptChain chain = order(saved, {.what = SlotOrder::What::kSave});
  Harness restored(options);
  order(restored, {.what = SlotOrder::What::kRestore, .chain = std::move(chain)});
  request.prompt = history(request);
  CHECK(ask(restored, request) >= 56);
}
