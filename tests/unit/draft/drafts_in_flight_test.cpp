// Drafts on a device that takes a step before the previous one is finished.
#include <catch2/catch.hpp>

#include "tests/unit/draft/drafted_runs.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Flights {
  std::uint64_t num_submitted = 0;
  std::uint64_t num_overlapped = 0;  // submitted while another was in flight
  EngineStats stats;
  std::vector<std::vector<TokenId>> texts;
};

// A device with two steps in flight.
Flights flights_of(HarnessOptions options, const std::vector<Request>& requests) {
  Flights out;
  const Engine* engine = nullptr;
  options.deferred_seed = 3;
  options.on_submit = [&](const StepPlan&, const StepArrays&) {
    out.num_overlapped += out.num_submitted++ == engine->stats().num_plans ? 0 : 1;
  };
  Harness harness(options);
  engine = &harness.engine;
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const Request& request : requests)
    sinks.push_back(harness.submit(request));
  harness.run();
  out.stats = harness.engine.stats();
  for (const auto& sink : sinks)
    out.texts.push_back(sink->choices[0].tokens);
  return out;
}

Request drawn_at_random(int seed, int max_tokens) {
  Request request = request_of(made_tokens(9, seed), max_tokens);
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  return request;
}

}  // namespace

TEST_CASE("two steps are in flight on a device but for those with drafts", "[engine][draft]") {
  const Request request = named(drawn_at_random(1, 200));
  const KnownTexts texts = texts_of(request);
  const Flights without = flights_of(one_in_flight(), {request});
  CHECK(without.num_overlapped > 190);
  const Flights with = flights_of(drafted(texts, 100), {request});
  CHECK(with.texts == without.texts);
  CHECK(with.texts[0] == texts.begin()->second);
  CHECK(with.num_submitted < 60);
  CHECK(with.num_overlapped < 4);  // the prompt's, until its first token is known
}

TEST_CASE("a device has two steps in flight while there is nothing to draft", "[engine][draft]") {
  const Request request = drawn_at_random(1, 200);
  const Flights without = flights_of(one_in_flight(), {request});
  HarnessOptions options = one_in_flight();
  options.engine.speculation.method = SpeculationMethod::kPromptLookup;
  const Flights with = flights_of(options, {request});
  CHECK(with.texts == without.texts);
  CHECK(with.stats.num_draft_tokens == 0);  // no three tokens stand twice in this text
  CHECK(with.num_overlapped == without.num_overlapped);
}

TEST_CASE("few drafts do not keep many sequences from having two steps in flight", "[engine][draft]") {
  std::vector<Request> requests{named(drawn_at_random(1, 100))};
  const KnownTexts texts = texts_of(requests[0]);
  for (int i = 0; i < 79; ++i)
    requests.push_back(drawn_at_random(i + 2, 100));
  HarnessOptions options = drafted(texts, 100, 4);
  options.num_blocks = 4000;
  options.engine.scheduler.max_num_seqs = 80;
  const Flights with = flights_of(options, requests);
  CHECK(with.stats.num_draft_tokens == 0);
  CHECK(with.num_overlapped > 90);
}

TEST_CASE("drafts that no step has room for are not waited for", "[engine][draft]") {
  const Request request = named(drawn_at_random(1, 200));
  const KnownTexts texts = texts_of(request);
  HarnessOptions options = drafted(texts, 100);
  options.engine.scheduler.max_num_batched_tokens = 1;
  const Flights with = flights_of(options, {request});
  CHECK(with.texts[0] == texts.begin()->second);
  CHECK(with.stats.num_draft_tokens == 0);
  CHECK(with.num_overlapped > 180);  // a step in seventeen is alone
}
