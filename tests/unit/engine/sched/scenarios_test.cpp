// Whole scenarios: memory far below the demand, a shared system prompt, a script that another scheduler was recorded
// with.
#include <catch2/catch.hpp>
#include <deque>
#include <nlohmann/json.hpp>

#include "core/sched/scheduler.h"
#include "tests/support/material.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr int kStreams = 32;

Request stream_request(int number) {
  Request request = request_of(made_tokens(20 + 7 * (number % 9), number), 40 + number);
  if (number % 2 == 1) {
    request.sampling.temperature = 0.8F;
    request.sampling.top_k = 20;
    request.sampling.seed = static_cast<std::uint64_t>(number);
  }
  return request;
}

}  // namespace

TEST_CASE("with the pool at a half, a quarter and a tenth of the demand all streams say what they say alone",
          "[engine][scenario]") {
  std::vector<std::vector<TokenId>> expected;
  std::int64_t demand = 0;  // blocks that all of them hold at their ends
  for (int i = 0; i < kStreams; ++i) {
    Harness harness;
    const Request request = stream_request(i);
    demand += (static_cast<std::int64_t>(request.prompt.size()) + request.sampling.max_tokens + 3) / 4;
    const auto sink = harness.submit(request);
    harness.run();
    expected.push_back(sink->choices[0].tokens);
  }
  const int percent = GENERATE(50, 25, 10);
  HarnessOptions options{.num_blocks = demand * percent / 100};
  options.engine.scheduler.max_num_batched_tokens = GENERATE(16, 64, 512);
  Harness harness(options);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < kStreams; ++i)
    sinks.push_back(harness.submit(stream_request(i)));
  std::shared_ptr<KeepingSink> dropped = harness.submit(request_of(made_tokens(30, 99), 90));
  for (int i = 0; i < 20; ++i)
    harness.step();
  harness.engine.queue().abort("r33");
  harness.run();
  for (std::size_t i = 0; i < kStreams; ++i) {
    INFO("stream " << i << " at " << percent << "%");
    CHECK(sinks[i]->choices[0].tokens == expected[i]);
    CHECK(sinks[i]->choices[0].finishes.size() == 1);
  }
  CHECK(dropped->choices[0].finishes.at(0).reason == FinishReason::kAbort);
  CHECK(harness.engine.stats().num_blocks_used == 0);
  CHECK(harness.engine.stats().num_blocks_used_peak <= options.num_blocks);
}

TEST_CASE("32 streams over one system prompt compute it once", "[engine][scenario]") {
  const std::vector<TokenId> system = made_tokens(1000, 1);
  Harness harness({.num_blocks = 2000});
  std::int64_t ideal = 1000;
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < kStreams; ++i) {
    std::vector<TokenId> prompt = system;
    const std::vector<TokenId> own = made_tokens(10 + i, 100 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    sinks.push_back(harness.submit(request_of(std::move(prompt), 5)));
    ideal += 10 + i + 4;
  }
  harness.run();
  CHECK(harness.model.num_rows <= ideal * 102 / 100);
  for (std::size_t i = 1; i < kStreams; ++i) {
    CHECK(sinks[i]->choices[0].finishes.at(0).num_cached_tokens >= 1000);
  }
}

// vLLM's scheduler on the same script (synchronous): N streams, two end in one step, two prompts of 1,024 tokens come.
// Ours need not do the same; where both have one answer, they do.
TEST_CASE("a recorded wave is composed as another scheduler composes it", "[scheduler][scenario]") {
  QUIRE_REQUIRE_MATERIAL(path, "scheduler/scheduler_wave/wave_script_oracle.json");
  const auto oracle = nlohmann::json::parse(read_file(path));
  const int num_streams = GENERATE(8, 32);
  const auto& records = oracle["arms"]["c" + std::to_string(num_streams) + "_sync"]["records"];
  KvCache kv(10'000, 16, false);
  SchedulerOptions options;
  options.max_num_seqs = oracle["shape"]["max_num_seqs"];
  options.max_num_batched_tokens = oracle["shape"]["max_num_batched_tokens"];
  Scheduler scheduler(options, kv);
  std::deque<Sequence> sequences;
  const auto add = [&](int num_tokens) {
    auto request = std::make_shared<Request>(request_of(made_tokens(num_tokens, 1), 1000));
    Sequence& sequence = sequences.emplace_back();
    sequence.id = SequenceId{static_cast<std::int64_t>(sequences.size())};
    sequence.tokens = request->prompt;
    sequence.num_prompt_tokens = num_tokens;
    sequence.request = std::move(request);
    scheduler.add(sequence);
  };
  for (int i = 0; i < num_streams; ++i)
    add(4);
  StepPlan plan;
  for (std::size_t step = 0; step < records.size(); ++step) {
    if (step == 3) {
      for (std::size_t i = 0; i < 2; ++i)
        scheduler.finish(sequences[i]);
    }
    if (step == 4) {
      for (int i = 0; i < 2; ++i)
        add(oracle["shape"]["fresh_prompt_len"]);
    }
    scheduler.schedule(plan);
    INFO("step " << step);
    CHECK(plan.num_streaming == records[step]["n_decode"]);
    CHECK(plan.num_prompt_tokens == records[step]["prefill_tokens"]);
    CHECK(plan.num_tokens == records[step]["total"]);
    CHECK(scheduler.num_running() == records[step]["running"]);
    std::vector<std::int64_t> prefills;
    for (const StepEntry& entry : plan.entries) {
      if (!entry.sequence->prompt_computed()) prefills.push_back(entry.num_tokens);
    }
    CHECK(prefills == records[step]["prefill_counts"].get<std::vector<std::int64_t>>());
    scheduler.commit(plan, {.seconds = 0.01});
    for (const StepEntry& entry : plan.entries) {
      if (entry.sequence->num_remaining() == 0) entry.sequence->tokens.push_back(TokenId{1});
    }
  }
}

TEST_CASE("two keys of a fair engine are served by their weights, however much one of them sends",
          "[engine][scenario]") {
  const double weight = GENERATE(1.0, 3.0);
  HarnessOptions options{.num_blocks = 1000};
  options.engine.scheduler.policy = SchedulerPolicy::kFair;
  options.engine.scheduler.key_weights = {{"light", weight}};
  options.engine.scheduler.max_num_seqs = 8;
  options.engine.queue.max_queued_requests = 10'000;
  Harness harness(options);
  struct Client {
    std::string key;
    int num_open;
    std::vector<std::shared_ptr<KeepingSink>> open;
    double served = 0.0;
  };
  std::vector<Client> clients = {{"heavy", 500, {}}, {"light", 10, {}}};
  int seed = 0;
  for (int step = 0; step < 4000; ++step) {
    for (Client& client : clients) {
      std::erase_if(client.open, [&](const auto& sink) {
        if (sink->finished()) client.served += 24.0 + static_cast<double>(sink->choices[0].tokens.size());
        return sink->finished();
      });
      while (std::cmp_less(client.open.size(), client.num_open)) {
        Request request = request_of(made_tokens(24, ++seed), 20);
        request.key_name = client.key;
        client.open.push_back(harness.submit(std::move(request)));
      }
    }
    harness.step();
  }
  const double ratio = clients[1].served / clients[0].served;
  CHECK(ratio > 0.95 * weight);
  CHECK(ratio < 1.05 * weight);
}
