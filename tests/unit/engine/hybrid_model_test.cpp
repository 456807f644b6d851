// The engine over models with recurrent layers: one text, however it is batched, cut, preempted, forked or continued.
#include <catch2/catch.hpp>

#include "tests/support/oracle_drafter.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kHybrids[] = {"qwen35",        "qwen35moe",  "qwen3next", "lfm2",       "lfm2moe",
                                    "granitehybrid", "nemotron-h", "falcon-h1", "kimi-linear"};

std::string hybrid_file(const std::string& family) {
  return "architectures/given/" + family + "/model.gguf";
}

Request hybrid_stream(int i) {
  Request request = request_of(made_tokens(20 + 17 * (i % 6), i, 60), 70 + i % 7);
  request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
  request.sampling.seed = static_cast<std::uint64_t>(i);
  return request;
}

std::vector<TokenId> followed_by(std::vector<TokenId> tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

EngineOptions without_cache() {
  EngineOptions options;
  options.kv_cache.enable_prefix_caching = false;
  options.scheduler.max_num_seqs = 8;
  return options;
}

}  // namespace

TEST_CASE("a hybrid model's streams say in a crowd what each says alone", "[engine][model][state]") {
  for (const std::string family : kHybrids) {
    QUIRE_REQUIRE_MATERIAL(path, hybrid_file(family));
    INFO(family);
    std::vector<std::vector<TokenId>> alone;
    ServedModel single(path, 40, without_cache());
    for (int i = 0; i < 12; ++i) {
      const auto sink = single.submit(hybrid_stream(i));
      single.run();
      alone.push_back(sink->choices[0].tokens);
    }
    EngineOptions options;
    options.scheduler.max_num_seqs = 8;
    options.scheduler.max_num_batched_tokens = 48;  // prompts are cut
    options.num_states = 10;                        // snapshots give way
    ServedModel crowded(path, 22, options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 12; ++i)
      sinks.push_back(crowded.submit(hybrid_stream(i)));
    crowded.run();
    for (std::size_t i = 0; i < 12; ++i) {
      INFO("stream " << i);
      CHECK(sinks[i]->choices[0].tokens == alone[i]);
    }
    CHECK(crowded.engine->stats().num_preemptions > 0);
    CHECK(crowded.engine->stats().num_blocks_used == 0);
  }
}

TEST_CASE("a hybrid model continues a conversation from its state, to the same text", "[engine][model][state]") {
  for (const std::string family : kHybrids) {
    QUIRE_REQUIRE_MATERIAL(path, hybrid_file(family));
    INFO(family);
    EngineOptions options;
    options.scheduler.max_num_seqs = 8;
    ServedModel served(path, 100, options);
    ServedModel fresh(path, 100, without_cache());
    const auto ask = [](ServedModel& model, const std::vector<TokenId>& prompt, int num_choices = 1) {
      Request request = request_of(prompt, 12);
      request.num_choices = num_choices;
      const auto sink = model.submit(std::move(request));
      model.run();
      return sink;
    };
    std::vector<TokenId> history = made_tokens(150, 1, 60);
    for (int turn = 0; turn < 3; ++turn) {
      INFO("turn " << turn);
      const auto answer = ask(served, history, turn == 1 ? 3 : 1);
      const auto expected = ask(fresh, history);
      for (const ChoiceOutput& choice : answer->choices)
        CHECK(choice.tokens == expected->choices[0].tokens);
      const std::int64_t num_cached = answer->choices[0].finishes.at(0).num_cached_tokens;
      const std::size_t num_new = turn == 0 ? 150 : 9;
      CHECK(std::cmp_less_equal(history.size() - static_cast<std::size_t>(num_cached), num_new + 64));
      history = followed_by(followed_by(history, expected->choices[0].tokens), made_tokens(9, 10 + turn, 60));
    }
  }
}

TEST_CASE("a hybrid model's bits do not depend on drafts", "[engine][model][state][draft]") {
  for (const std::string family : kHybrids) {
    QUIRE_REQUIRE_MATERIAL(path, hybrid_file(family));
    INFO(family);
    EngineOptions options;
    options.scheduler.max_num_seqs = 8;
    options.num_states = 20;
    const auto run = [&] {
      // Fixed prices decide how much is drafted, not this machine's.
      ServedModel served(path, 60, options, StepPrice{.fixed = 0.01, .stream = 0.0005, .prompt_token = 0.0001});
      std::vector<std::shared_ptr<KeepingSink>> sinks;
      for (int i = 0; i < 6; ++i) {
        Request request = hybrid_stream(i);
        request.sampling.num_logprobs = 2;
        sinks.push_back(served.submit(std::move(request)));
      }
      served.run();
      return std::pair(std::move(sinks), served.engine->stats());
    };
    const auto [without, none] = run();
    CHECK(none.num_drafts == 0);
    KnownTexts texts;
    for (int i = 0; i < 6; ++i)
      texts[{std::to_string(i), 0}] = without[static_cast<std::size_t>(i)]->choices[0].tokens;
    options.speculation.method = SpeculationMethod::kPromptLookup;
    options.make_drafter = OracleDrafter::factory(texts, 60, 60);
    const auto [with, stats] = run();
    for (std::size_t i = 0; i < 6; ++i) {
      const ChoiceOutput& drafted = with[i]->choices[0];
      const ChoiceOutput& plain = without[i]->choices[0];
      CHECK(drafted.tokens == plain.tokens);
      REQUIRE(drafted.logprobs.size() == plain.logprobs.size());
      for (std::size_t k = 0; k < plain.logprobs.size(); ++k)
        CHECK(drafted.logprobs[k].logprob == plain.logprobs[k].logprob);
    }
    CHECK(stats.num_accepted_tokens > 0);
    CHECK(stats.num_accepted_tokens < stats.num_draft_tokens);
  }
}
