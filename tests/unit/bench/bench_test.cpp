#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "core/model/tools/synth_vocab.h"
#include "core/text/tokenizer_data.h"
#include "server/cli/bench/report.h"
#include "server/cli/bench/sse_reader.h"
#include "server/cli/bench/workload.h"
#include "tests/support/material.h"

namespace quire::bench {
namespace {

TEST_CASE("a range is one number or two in order") {
  REQUIRE(parse_range("128-512"));
  CHECK(parse_range("128-512")->low == 128);
  CHECK(parse_range("128-512")->high == 512);
  CHECK(parse_range("7")->high == 7);
  for (const char* bad : {"", "a", "5-", "-5", "5-4", "0", "1-2x"})
    CHECK_FALSE(parse_range(bad));
}

TEST_CASE("the same seed plans the same work, with the shared prefix first") {
  WorkloadOptions options;
  options.num_requests = 20;
  options.shared_prefix_words = 50;
  const auto first = *plan_workload(options);
  const auto second = *plan_workload(options);
  REQUIRE(first.size() == 20);
  const std::string prefix = first[0].prompt.substr(0, 100);
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i].prompt == second[i].prompt);
    CHECK(first[i].prompt.substr(0, 100) == prefix);
    CHECK(first[i].max_tokens >= 64);
    CHECK(first[i].max_tokens <= 128);
    CHECK_FALSE(first[i].arrival_seconds);
  }
  options.seed = 2;
  CHECK((*plan_workload(options))[0].prompt != first[0].prompt);
}

TEST_CASE("scenarios are planned by their options alone") {
  for (const Scenario scenario : {Scenario::kEdit, Scenario::kAgent, Scenario::kRag}) {
    WorkloadOptions options;
    options.scenario = scenario;
    options.num_requests = 10;
    const auto first = *plan_workload(options);
    const auto second = *plan_workload(options);
    REQUIRE(first.size() == 10);
    for (std::size_t i = 0; i < first.size(); ++i) {
      CHECK(first[i].prompt == second[i].prompt);
      CHECK(first[i].max_tokens == second[i].max_tokens);
    }
    options.seed = 2;
    CHECK((*plan_workload(options))[0].prompt != first[0].prompt);
  }
}

TEST_CASE("an edited text has room in its answer") {
  WorkloadOptions options;
  options.scenario = Scenario::kEdit;
  options.num_requests = 5;
  options.prompt_words = {30, 60};
  const auto plan = *plan_workload(options);
  for (const PlannedRequest& request : plan) {
    CHECK(request.prompt.find("\n1 ") != std::string::npos);
    CHECK(request.max_tokens >= 30);
    CHECK(request.max_tokens <= 70);
  }
}

TEST_CASE("each turn of an agent begins with the turn before it, and all with one system text") {
  WorkloadOptions options;
  options.scenario = Scenario::kAgent;
  options.num_requests = 3 * kAgentTurns;
  options.shared_prefix_words = 40;
  const auto plan = *plan_workload(options);
  const std::string system = plan[0].prompt.substr(0, plan[0].prompt.find("Task 1"));
  CHECK(std::count(system.begin(), system.end(), ' ') >= 40);
  const std::string end = "Next call:";
  for (std::size_t i = 0; i < plan.size(); ++i) {
    CHECK(plan[i].prompt.starts_with(system));
    if (i < 3) continue;
    const std::string& before = plan[i - 3].prompt;
    CHECK(plan[i].prompt.starts_with(before.substr(0, before.size() - end.size())));
  }
}

TEST_CASE("retrieval finds the same documents again, each once in a prompt") {
  WorkloadOptions options;
  options.scenario = Scenario::kRag;
  options.num_requests = 30;
  options.prompt_words = {20, 40};
  std::map<std::string, int> seen;
  const auto plan = *plan_workload(options);
  for (const PlannedRequest& request : plan) {
    std::set<std::string> own;
    for (std::size_t at = request.prompt.find("Document "); at != std::string::npos;
         at = request.prompt.find("Document ", at + 1))
      own.insert(request.prompt.substr(
          at, std::min(request.prompt.find("Document ", at + 1), request.prompt.find("Question:")) - at));
    CHECK(std::ssize(own) == kRagDocuments);
    for (const std::string& document : own)
      ++seen[document];
  }
  CHECK(std::ssize(seen) <= kRagCorpus);
  CHECK(std::ranges::any_of(seen, [](const auto& each) { return each.second > 5; }));
}

TEST_CASE("a prompt of so many words is so many tokens of a synthetic model") {
  const SynthVocab vocab = make_synth_vocab(kWordySynthVocab);
  VocabularyData data;
  data.model = "gpt2";
  data.pre = GENERATE("qwen2", "llama-bpe");
  data.tokens.assign(vocab.tokens.begin(), vocab.tokens.end());
  data.merges.assign(vocab.merges.begin(), vocab.merges.end());
  const auto tokenizer = make_tokenizer(data);
  WorkloadOptions options;
  options.num_requests = 20;
  options.prompt_words = {100, 100};
  const auto plan = plan_workload(options);
  for (const PlannedRequest& planned : *plan)
    CHECK(tokenizer->encode(planned.prompt, false, false).size() == 100);
}

TEST_CASE("Poisson arrivals ascend at the asked rate") {
  WorkloadOptions options;
  options.num_requests = 4000;
  options.prompt_words = {1, 1};
  options.requests_per_second = 10;
  const auto plan = *plan_workload(options);
  for (std::size_t i = 1; i < plan.size(); ++i)
    CHECK(*plan[i].arrival_seconds >= *plan[i - 1].arrival_seconds);
  CHECK(*plan.back().arrival_seconds == Approx(400).epsilon(0.1));
}

TEST_CASE("recorded traces keep lengths, arrivals and shared prefixes") {
  QUIRE_REQUIRE_MATERIAL(azure, "traces/azure2023_conv.csv");
  QUIRE_REQUIRE_MATERIAL(mooncake, "traces/mooncake_conversation_trace.jsonl.gz");
  WorkloadOptions options;
  options.num_requests = 10;
  options.trace = azure;
  const auto from_azure = *plan_workload(options);
  REQUIRE(from_azure.size() == 10);
  CHECK(from_azure[0].max_tokens == 44);
  CHECK(*from_azure[0].arrival_seconds == 0);
  CHECK(*from_azure[1].arrival_seconds == Approx(4.315).epsilon(1e-3));
  options.trace = mooncake;
  const auto from_mooncake = *plan_workload(options);
  // Rows 0 and 1 share hash block 0 (512 tokens) and nothing after it.
  const auto& a = from_mooncake[0].prompt;
  const auto& b = from_mooncake[1].prompt;
  const auto differ = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  const auto words = std::count(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(differ), ' ');
  CHECK(words >= 511);
  CHECK(words < 530);
  options.trace = azure.parent_path() / "absent.csv";
  CHECK_FALSE(plan_workload(options));
}

TEST_CASE("events come whole from bytes in any pieces") {
  const std::string stream = "data: {\"a\":1}\n\n: comment\nevent: x\ndata:two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n";
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    SseReader reader;
    std::vector<std::string> events;
    for (std::size_t i = 0; i < stream.size(); i += piece) {
      for (auto& event : reader.push(std::string_view(stream).substr(i, piece)))
        events.push_back(event);
    }
    CHECK(events == std::vector<std::string>{"{\"a\":1}", "two\nlines", "[DONE]"});
  }
}

TEST_CASE("percentiles interpolate and errors do not count as latency") {
  const Summary summary = summarize({4, 1, 3, 2});
  CHECK(summary.p50 == Approx(2.5));
  CHECK(summary.mean == Approx(2.5));
  RequestRecord good;
  good.ok = true;
  good.sent = 1;
  good.events = {1.5, 2.0, 2.25};
  good.finished = 2.5;
  good.output_tokens = 3;
  RequestRecord bad;
  bad.sent = 1;
  bad.finished = 3;
  bad.error = "HTTP 503";
  const ServeReport report = make_report({good, bad});
  CHECK(report.num_errors == 1);
  CHECK(report.output_tokens == 3);
  CHECK(report.seconds == Approx(2.0));
  CHECK(report.ttft.p50 == Approx(0.5));
  CHECK(report.itl.mean == Approx(0.375));
  CHECK(report.e2e.p99 == Approx(1.5));
  CHECK(report.sample_errors == std::vector<std::string>{"HTTP 503"});
}

}  // namespace
}  // namespace quire::bench
