#include "core/engine/engine.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "core/model/parts/adapter.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

std::vector<TokenId> alone(const Request& request, HarnessOptions options = {}) {
  Harness harness(options);
  const auto sink = harness.submit(request);
  harness.run();
  return sink->choices[0].tokens;
}

}  // namespace

TEST_CASE("a request gets max_tokens tokens and one finish event", "[engine]") {
  Harness harness;
  const auto sink = harness.submit(request_of(made_tokens(10, 1), 7));
  harness.run();
  REQUIRE(sink->choices[0].tokens.size() == 7);
  REQUIRE(sink->choices[0].finishes.size() == 1);
  const FinishInfo& info = sink->choices[0].finishes[0];
  CHECK(info.reason == FinishReason::kLength);
  CHECK(info.num_prompt_tokens == 10);
  CHECK(info.num_generated_tokens == 7);
  CHECK(harness.engine.stats().num_running == 0);
  CHECK(harness.engine.stats().num_blocks_used == 0);
}

TEST_CASE("an end is counted before it is reported") {
  class AskingSink : public OutputSink {
   public:
    explicit AskingSink(const Engine& engine) : engine_(engine) {}
    void send(OutputEvent event) noexcept override {
      if (event.finish) at_end = engine_.stats();
    }
    EngineStats at_end;

   private:
    const Engine& engine_;
  };
  Harness harness;
  Request request = request_of(made_tokens(10, 1), 7);
  request.id = "asked";
  const auto sink = std::make_shared<AskingSink>(harness.engine);
  const auto accepted = harness.engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(accepted);
  harness.run();
  CHECK(sink->at_end.generation_tokens == 7);
  CHECK(sink->at_end.prompt_tokens == 10);
  CHECK(sink->at_end.computed_tokens == 10 + 6);
  CHECK(sink->at_end.num_steps == 7);
  CHECK(sink->at_end.num_running == 0);
  CHECK(sink->at_end.num_blocks_used == 0);
}

TEST_CASE("logits are asked for where a token is drawn, and nowhere else", "[engine]") {
  HarnessOptions options;
  options.engine.scheduler.max_num_batched_tokens = 6;  // prompts are computed in chunks beside streams
  Harness harness(options);
  for (int i = 0; i < 3; ++i)
    harness.submit(request_of(made_tokens(10 + 3 * i, i), 5));
  harness.run();
  CHECK(harness.model.num_rows == 10 + 13 + 16 + 3 * 4);
  CHECK(harness.model.num_logit_rows == 3 * 5);
}

TEST_CASE("a trace holds every step with what it computed, and nothing while it is off", "[engine]") {
  Harness harness;
  harness.submit(request_of(made_tokens(10, 1), 3));
  harness.run();
  REQUIRE(harness.engine.step_trace().start(100));
  CHECK_FALSE(harness.engine.step_trace().start(100));
  Request request = request_of(made_tokens(10, 2), 3);
  request.id = "traced";
  harness.submit(request);
  harness.run();
  const std::vector<StepRecord> steps = harness.engine.step_trace().stop();
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].num_tokens == 10);
  REQUIRE(steps[0].entries.size() == 1);
  CHECK(steps[0].entries[0].request_id == "traced");
  CHECK(steps[0].entries[0].num_tokens == 10);
  CHECK(steps[0].entries[0].is_prompt);
  CHECK(steps[0].terms.num_prompt_tokens == 10.0);
  CHECK(steps[0].terms.prompt_ktokens == Approx(0.05));
  CHECK(steps[1].terms.num_prompt_tokens == 0.0);
  CHECK(steps[1].terms.num_streams == 1.0);
  CHECK(steps[1].terms.stream_ktokens == Approx(0.01));
  CHECK(steps[1].seconds > 0.0);
  CHECK(steps[1].num_tokens == 1);
  CHECK_FALSE(steps[1].entries[0].is_prompt);
  CHECK(steps[1].began >= steps[0].began);
  const EngineStats stats = harness.engine.stats();
  std::uint64_t num_timed = 0;
  for (const std::uint64_t count : stats.step_times)
    num_timed += count;
  CHECK(num_timed == stats.num_steps);
  CHECK(stats.phase_ns[static_cast<std::size_t>(StepPhase::kForward)] > 0);
  for (const auto& times : stats.phase_times)
    CHECK(std::accumulate(times.begin(), times.end(), std::uint64_t{0}) == stats.num_steps);
  REQUIRE(harness.engine.step_trace().start(2));
  harness.submit(request_of(made_tokens(10, 3), 9));
  harness.run();
  CHECK(harness.engine.step_trace().stop().size() == 2);
}

TEST_CASE("the same request gives the same tokens alone, batched, chunked, cached and preempted", "[engine]") {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request_of(made_tokens(5 + 3 * i, i), 20 + i));
    if (i % 2 == 1) {
      requests.back().sampling.temperature = 0.9F;
      requests.back().sampling.seed = static_cast<std::uint64_t>(i);
      requests.back().sampling.top_p = 0.9F;
    }
  }
  std::vector<std::vector<TokenId>> expected;
  for (const Request& request : requests)
    expected.push_back(alone(request));

  struct Case {
    std::int64_t num_blocks;
    int max_num_batched_tokens;
    int max_num_seqs;
    bool prefix_caching;
  };
  const auto tested =
      GENERATE(Case{400, 2048, 64, true}, Case{400, 16, 64, true}, Case{400, 7, 3, true}, Case{400, 64, 64, false},
               Case{40, 64, 64, true}, Case{20, 64, 64, true}, Case{20, 8, 64, false}, Case{19, 512, 64, true});
  HarnessOptions options{.num_blocks = tested.num_blocks};
  options.engine.scheduler.max_num_batched_tokens = tested.max_num_batched_tokens;
  options.engine.scheduler.max_num_seqs = tested.max_num_seqs;
  options.engine.kv_cache.enable_prefix_caching = tested.prefix_caching;
  Harness harness(options);
  for (int round = 0; round < 2; ++round) {  // the second finds its prompts cached
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const Request& request : requests)
      sinks.push_back(harness.submit(request));
    harness.run();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      INFO("blocks " << tested.num_blocks << ", request " << i << ", round " << round);
      CHECK(sinks[i]->choices[0].tokens == expected[i]);
      CHECK(sinks[i]->choices[0].finishes.size() == 1);
    }
  }
  CHECK(harness.engine.stats().num_blocks_used == 0);
  if (tested.num_blocks <= 20) CHECK(harness.engine.stats().num_preemptions > 0);
}

TEST_CASE("choices share the prompt, which is computed once", "[engine]") {
  Request request = request_of(made_tokens(18, 3), 9);
  request.num_choices = 4;
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 11;
  HarnessOptions options;
  options.engine.kv_cache.enable_prefix_caching = GENERATE(true, false);
  Harness harness(options);
  const auto sink = harness.submit(request);
  harness.run();
  CHECK(harness.model.num_rows == 18 + 4 * 8);
  for (const ChoiceOutput& choice : sink->choices) {
    CHECK(choice.tokens.size() == 9);
    CHECK(choice.finishes.size() == 1);
  }
  CHECK(sink->choices[0].tokens != sink->choices[1].tokens);
  // Choice 0 is the same as without the others.
  request.num_choices = 1;
  CHECK(alone(request) == sink->choices[0].tokens);
}

TEST_CASE("choices come out the same when they are preempted one by one", "[engine]") {
  Request request = request_of(made_tokens(10, 3), 30);
  request.num_choices = 5;
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  Harness roomy;
  const auto expected = roomy.submit(request);
  roomy.run();
  Harness tight({.num_blocks = 14});
  const auto sink = tight.submit(request);
  tight.run();
  CHECK(tight.engine.stats().num_preemptions > 0);
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(sink->choices[i].tokens == expected->choices[i].tokens);
}

TEST_CASE("a repeated conversation is served from the cache, mid-block included", "[engine]") {
  Harness harness;
  const auto first = harness.submit(request_of(made_tokens(10, 1), 5));
  harness.run();
  std::vector<TokenId> longer = made_tokens(10, 1);
  longer.insert(longer.end(), first->choices[0].tokens.begin(), first->choices[0].tokens.end());
  longer.push_back(TokenId{3});
  const auto second = harness.submit(request_of(longer, 5));
  harness.run();
  // The first computed 14 of its 15 tokens: three full blocks and half of a fourth.
  CHECK(second->choices[0].finishes[0].num_cached_tokens == 14);
  CHECK(second->choices[0].tokens == alone(request_of(longer, 5)));
  CHECK(harness.engine.stats().num_blocks_copied == 1);
}

TEST_CASE("requests that arrive together compute a common prefix once", "[engine]") {
  Harness harness({.num_blocks = 400});
  const std::vector<TokenId> common = made_tokens(100, 1);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(common);
    const auto suffix = made_tokens(6, 50 + i);
    prompts.back().insert(prompts.back().end(), suffix.begin(), suffix.end());
    sinks.push_back(harness.submit(request_of(prompts.back(), 3)));
  }
  harness.run();
  CHECK(harness.model.num_rows == 100 + 8 * 6 + 8 * 2);
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(sinks[i]->choices[0].tokens == alone(request_of(prompts[i], 3)));
}

TEST_CASE("equal requests that arrive together compute their prompt once", "[engine]") {
  Harness harness;
  for (int i = 0; i < 4; ++i)
    harness.submit(request_of(made_tokens(11, 1), 1));
  harness.run();
  CHECK(harness.model.num_rows == 11 + 3);  // each still computes its last token
}

TEST_CASE("salts keep prefixes apart", "[engine]") {
  Harness harness;
  Request request = request_of(made_tokens(16, 1), 2);
  request.cache_salt = "a";
  harness.submit(request);
  harness.run();
  request.cache_salt = "b";
  const auto other = harness.submit(request);
  harness.run();
  CHECK(other->choices[0].finishes[0].num_cached_tokens == 0);
  request.cache_salt = "a";
  const auto same = harness.submit(request);
  harness.run();
  CHECK(same->choices[0].finishes[0].num_cached_tokens == 15);
}

TEST_CASE("keys share no prefix when they are to be kept apart", "[engine]") {
  const bool isolate = GENERATE(false, true);
  HarnessOptions options;
  options.engine.kv_cache.isolate_by_key = isolate;
  Harness harness(options);
  const auto num_cached = [&](const std::string& key, const std::string& salt) {
    Request request = request_of(made_tokens(16, 1), 2);
    request.key_name = key;
    request.cache_salt = salt;
    const auto sink = harness.submit(request);
    harness.run();
    return sink->choices[0].finishes[0].num_cached_tokens;
  };
  CHECK(num_cached("alice", "") == 0);
  CHECK(num_cached("alice", "") == 15);
  CHECK(num_cached("bob", "") == (isolate ? 0 : 15));
  CHECK(num_cached("bob", "alice") == 0);
  CHECK(num_cached("bob", std::string("\0alice", 6)) == 0);  // a salt cannot pass for a key
}

TEST_CASE("adapters share no prefix, and no salt passes for an adapter", "[engine]") {
  const bool isolate = GENERATE(false, true);
  HarnessOptions options;
  options.engine.kv_cache.isolate_by_key = isolate;
  Harness harness(options);
  const auto adapter = std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), Adapter::Group(), "hash");
  const auto num_cached = [&](const std::shared_ptr<const Adapter>& used, const std::string& salt) {
    Request request = request_of(made_tokens(16, 1), 2);
    request.adapter = used;
    request.cache_salt = salt;
    const auto sink = harness.submit(request);
    harness.run();
    return sink->choices[0].finishes[0].num_cached_tokens;
  };
  CHECK(num_cached(adapter, "") == 0);
  CHECK(num_cached(adapter, "") == 15);
  CHECK(num_cached(nullptr, "") == 0);
  for (const std::string& salt : {std::string("hash"), std::string("\0hash", 5), std::string("\0\0hash", 6)}) {
    CHECK(num_cached(nullptr, salt) == 0);
    CHECK(num_cached(nullptr, salt) == 15);
  }
  CHECK(num_cached(adapter, "hash") == 0);
}

TEST_CASE("an aborted request is gone within one step", "[engine]") {
  Harness harness;
  Request request = request_of(made_tokens(8, 1), 50);
  request.id = "gone";
  const auto aborted = harness.submit(request);
  const auto other = harness.submit(request_of(made_tokens(8, 2), 10));
  harness.step();
  harness.step();
  harness.engine.queue().abort("gone");
  harness.engine.queue().abort("unknown");
  const std::size_t before = aborted->choices[0].tokens.size();
  harness.step();
  CHECK(aborted->choices[0].tokens.size() == before);
  REQUIRE(aborted->choices[0].finishes.size() == 1);
  CHECK(aborted->choices[0].finishes[0].reason == FinishReason::kAbort);
  harness.run();
  CHECK(other->choices[0].tokens == alone(request_of(made_tokens(8, 2), 10)));
}

TEST_CASE("one choice can be ended without the others", "[engine]") {
  Harness harness;
  Request request = request_of(made_tokens(8, 1), 10);
  request.id = "two";
  request.num_choices = 2;
  const auto sink = harness.submit(request);
  for (int i = 0; i < harness.depth; ++i)  // the first token is sent
    harness.step();
  harness.engine.queue().abort("two", 0);
  harness.run();
  CHECK(sink->choices[0].tokens.size() == 1);
  CHECK(sink->choices[0].finishes.size() == 1);
  CHECK(sink->choices[1].tokens.size() == 10);
}

TEST_CASE("a deadline cuts a request with a timeout", "[engine]") {
  Harness harness;
  Request request = request_of(made_tokens(8, 1), 1000);
  request.sampling.max_tokens = 100;
  request.num_choices = 2;
  request.deadline = harness.now + std::chrono::milliseconds(5);
  const auto sink = harness.submit(request);
  harness.run();
  for (const ChoiceOutput& choice : sink->choices) {
    REQUIRE(choice.finishes.size() == 1);
    CHECK(choice.finishes[0].error->kind == ErrorKind::kTimeout);
    CHECK(choice.tokens.size() <= 4);
    CHECK(choice.tokens.size() >= (harness.depth == 1 ? 4U : 2U));  // a step later for depth 2, and for a fork
  }
}

TEST_CASE("what can never fit is refused by name, and affects no other request", "[engine]") {
  Harness harness({.num_blocks = 8});
  const auto fits = harness.submit(request_of(made_tokens(8, 1), 24));
  const auto too_long = harness.submit(request_of(made_tokens(8, 1), 25));
  const auto empty = harness.submit(request_of({}, 5));
  harness.run();
  CHECK(fits->choices[0].tokens.size() == 24);
  REQUIRE(too_long->choices[0].finishes.size() == 1);
  CHECK(too_long->choices[0].finishes[0].error->code == "context_length_exceeded");
  CHECK(empty->choices[0].finishes[0].error->param == "prompt");
}

TEST_CASE("a device failure ends every request with an error and turns the engine unhealthy", "[engine]") {
  Harness harness;
  harness.model.fail_after_rows = 20;
  const auto running = harness.submit(request_of(made_tokens(8, 1), 50));
  Request several = request_of(made_tokens(9, 2), 50);
  several.num_choices = 3;
  const auto waiting = harness.submit(several);
  harness.run();
  CHECK_FALSE(harness.engine.healthy());
  CHECK(running->choices[0].finishes.at(0).error->kind == ErrorKind::kInternal);
  for (const ChoiceOutput& choice : waiting->choices)
    CHECK(choice.finishes.size() == 1);
  harness.submit(request_of(made_tokens(8, 1), 5));
  REQUIRE_FALSE(harness.refused);
  CHECK(harness.refused.error().code == "device_failed");
}

TEST_CASE("end-of-sequence and stop tokens end a generation and stay out of it", "[engine]") {
  const std::vector<TokenId> all = alone(request_of(made_tokens(6, 4), 20));
  const TokenId end = all[7];
  const auto first = std::find(all.begin(), all.end(), end);
  Request request = request_of(made_tokens(6, 4), 20);
  HarnessOptions options;
  SECTION("end-of-sequence") {
    request.sampling.ignore_eos = false;
    options.eos = {end};
  }
  SECTION("a stop token") {
    request.sampling.stop_token_ids = {end};
  }
  Harness harness(options);
  const auto sink = harness.submit(request);
  harness.run();
  CHECK(sink->choices[0].tokens == std::vector<TokenId>(all.begin(), first));
  CHECK(sink->choices[0].finishes[0].reason == FinishReason::kStop);
  CHECK(sink->choices[0].finishes[0].stop_token == end);
  CHECK(sink->choices[0].finishes[0].num_generated_tokens == static_cast<int>(first - all.begin()) + 1);
}
