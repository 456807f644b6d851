#include "core/sim/simulation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/sim/report.h"
#include "core/sim/step_fit.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::sim;

namespace {

constexpr const char* kConversation = "traces/mooncake_conversation_trace.jsonl.gz";

std::unique_ptr<TraceSource> opened(const std::filesystem::path& path, double speed = 1.0) {
  auto source = open_trace(path.string(), speed);
  REQUIRE(source.has_value());
  return *std::move(source);
}

std::vector<TraceRequest> all_of(TraceSource& source) {
  std::vector<TraceRequest> requests;
  for (TraceRequest request; source.next(request);)
    requests.push_back(request);
  return requests;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) : path_(std::filesystem::temp_directory_path() / name()) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  static std::string name() {
    return "quire-trace-" + std::to_string(reinterpret_cast<std::uintptr_t>(&name)) + ".txt";
  }
  std::filesystem::path path_;
};

SimOptions fast(std::int64_t num_blocks, std::int32_t block_size) {
  SimOptions options;
  options.num_blocks = num_blocks;
  options.block_size = block_size;
  options.scheduler.max_num_seqs = 512;
  options.scheduler.max_num_batched_tokens = 8192;
  options.price = {.fixed = 8e-3, .stream = 5e-5, .prompt_token = 1e-5, .stream_ktoken = 1e-6};
  return options;
}

SimReport simulated(const SimOptions& options, TraceSource& source) {
  auto report = simulate(options, source);
  REQUIRE(report.has_value());
  return *std::move(report);
}

SimReport simulated(const SimOptions& options, const std::string& synthetic) {
  const auto traffic = parse_synthetic(synthetic);
  REQUIRE(traffic.has_value());
  return simulated(options, *make_synthetic(*traffic));
}

// Blocks that a cache of `capacity` blocks would have found, for each request in turn, with LRU eviction.
std::int64_t plain_lru_hits(const std::vector<TraceRequest>& requests, std::size_t capacity) {
  std::list<std::int32_t> order;
  std::unordered_map<std::int32_t, std::list<std::int32_t>::iterator> places;
  std::int64_t num_hits = 0;
  for (const TraceRequest& request : requests) {
    bool in_prefix = true;
    for (const std::int32_t id : request.hash_ids) {
      const auto found = places.find(id);
      in_prefix = in_prefix && found != places.end();
      if (in_prefix) ++num_hits;
      if (found != places.end()) order.erase(found->second);
      order.push_back(id);
      places[id] = std::prev(order.end());
      if (order.size() > capacity) {
        places.erase(order.front());
        order.pop_front();
      }
    }
  }
  return num_hits;
}

}  // namespace

TEST_CASE("with an unbounded pool the hit rate of Mooncake's conversations is the ideal one", "[sim]") {
  QUIRE_REQUIRE_MATERIAL(path, kConversation);
  const auto source = opened(path);
  const SimReport report = simulated(fast(0, kHashBlockSize), *source);
  std::int64_t num_blocks = 0;
  std::int64_t num_found = 0;
  std::unordered_map<std::int32_t, bool> seen;
  for (const TraceRequest& request : all_of(*opened(path))) {
    bool in_prefix = true;
    for (const std::int32_t id : request.hash_ids) {
      in_prefix = in_prefix && seen[id];
      num_found += in_prefix ? 1 : 0;
      ++num_blocks;
    }
    for (const std::int32_t id : request.hash_ids)
      seen[id] = true;
  }
  CHECK(report.num_prompt_blocks == num_blocks);
  CHECK(report.num_cached_blocks == num_found);
  CHECK(report.num_preemptions == 0);
}

TEST_CASE("at a real pool's size hits are at least those of plain LRU", "[sim]") {
  QUIRE_REQUIRE_MATERIAL(path, kConversation);
  const auto requests = all_of(*opened(path));
  const std::int64_t num_blocks = GENERATE(3'000, 20'000);
  const auto source = opened(path);
  const SimReport report = simulated(fast(num_blocks, kHashBlockSize), *source);
  CHECK(report.num_requests == 12'031);
  CHECK(report.num_cached_blocks >= plain_lru_hits(requests, static_cast<std::size_t>(num_blocks)));
}

TEST_CASE("Azure's conversations run to their end with every token", "[sim]") {
  QUIRE_REQUIRE_MATERIAL(path, "traces/azure2023_conv.csv");
  const auto source = opened(path);
  const SimReport report = simulated(fast(20'000, 16), *source);
  CHECK(report.num_requests == 19'366);
  CHECK(report.num_prompt_tokens == 22'361'870);
  CHECK(report.num_output_tokens == 4'088'665);
  CHECK(report.duration_s > 3'500.0);
  CHECK(report.ttft_s.num_values() == 19'366);
  CHECK(report.itl_s.num_values() == 4'088'665 - 19'366);
}

TEST_CASE("a pool too small for the load preempts, and everything is finished", "[sim]") {
  SimOptions options = fast(400, 16);
  options.scheduler.max_num_seqs = 64;
  const SimReport report = simulated(options, "requests=500,rate=50,prompt=200,output=200,max=2000,seed=3");
  CHECK(report.num_requests == 500);
  CHECK(report.num_preemptions > 0);
  CHECK(report.e2e_s.num_values() == 500);
  CHECK(report.peak_blocks <= 400);
}

TEST_CASE("a fleet that routes by prefix finds more cached than one that takes turns", "[sim]") {
  SimOptions options = fast(3'000, 16);
  options.num_replicas = 4;
  const std::string traffic = "requests=2000,rate=20,prompt=100,output=20,shared=2048,groups=40,seed=2";
  const SimReport in_turn = simulated(options, traffic);
  options.route = Route::kPrefix;
  const SimReport by_prefix = simulated(options, traffic);
  CHECK(by_prefix.hit_rate() > in_turn.hit_rate() + 0.1);
  CHECK(by_prefix.num_output_tokens == in_turn.num_output_tokens);
}

TEST_CASE("routing by load serves a fleet better than taking turns", "[sim]") {
  SimOptions options = fast(20'000, 16);
  options.scheduler.max_num_seqs = 4;
  options.num_replicas = 4;
  const std::string traffic = "requests=3000,rate=20,cv=2,prompt=500,output=100,output_cv=3,seed=5";
  const SimReport in_turn = simulated(options, traffic);
  options.route = Route::kLeastLoaded;
  const SimReport by_load = simulated(options, traffic);
  CHECK(by_load.ttft_s.percentile(99) < in_turn.ttft_s.percentile(99));
}

TEST_CASE("drafts that are often right save steps, and those that never are cost next to nothing", "[sim]") {
  const auto run = [](std::int32_t max_drafts, double acceptance) {
    SimOptions options = fast(2000, 16);
    options.price.stream = 5e-4;
    options.max_drafts = max_drafts;
    options.draft_acceptance = acceptance;
    return simulated(options, "rate=0.3,requests=100,prompt=200,output=200");
  };
  const SimReport without = run(0, 0.7);
  const SimReport with = run(4, 0.7);
  const SimReport wrong = run(8, 0.0);
  CHECK(without.num_draft_tokens == 0);
  CHECK(with.num_output_tokens == without.num_output_tokens);
  CHECK(with.num_accepted_tokens > with.num_draft_tokens / 3);
  CHECK(with.busy_s < 0.75 * without.busy_s);
  CHECK(wrong.num_output_tokens == without.num_output_tokens);
  CHECK(wrong.num_accepted_tokens == 0);
  CHECK(wrong.num_draft_tokens > 0);
  CHECK(wrong.busy_s < without.busy_s / 0.97);
}

TEST_CASE("keys get equal shares of a fair replica", "[sim]") {
  SimOptions options = fast(20'000, 16);
  options.scheduler.policy = SchedulerPolicy::kFair;
  const SimReport report = simulated(options, "requests=4000,rate=1000,prompt=200,output=50,keys=4");
  CHECK(report.keys.size() == 4);
  CHECK(report.fairness() > 0.99);
}

TEST_CASE("the same traffic gives the same report", "[sim]") {
  const std::string traffic = "requests=300,rate=10,seed=9";
  const SimCase a{"a", {}, simulated(fast(5'000, 16), traffic)};
  const SimCase b{"a", {}, simulated(fast(5'000, 16), traffic)};
  CHECK(to_json({a}) == to_json({b}));
}

TEST_CASE("traces are read, sorted and scaled", "[sim]") {
  const TemporaryFile csv(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:50.5,396,109\r\n2023-11-16 18:15:46.5000000,374,44\n");
  const auto requests = all_of(*opened(csv.path(), 2.0));
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].num_prompt_tokens == 374);
  CHECK(requests[1].arrival_s == Approx(2.0));
  CHECK(requests[1].num_output_tokens == 109);
}

TEST_CASE("a damaged trace is refused with file and line", "[sim]") {
  const std::string good = R"({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]})";
  const std::string bad = GENERATE(as<std::string>(), R"({"timestamp": 0, "input_length": 600})",
                                   R"({"timestamp": 0, "input_length": -6, "output_length": 5, "hash_ids": [1]})",
                                   R"({"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": [1,x]})",
                                   R"({"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": 7})", "hello",
                                   "a,b,c", "2023-11-16 18:15:50.5,1", R"({"timestamp":)", "{");
  const TemporaryFile file(good + "\n" + bad + "\n");
  const auto source = open_trace(file.path(), 1.0);
  REQUIRE_FALSE(source.has_value());
  CHECK(source.error().message.find(file.path() + ":2:") != std::string::npos);
}

TEST_CASE("numbers are asked for by name", "[sim]") {
  CHECK(parse_price("base=5,prompt=0.5")->prompt_token == 0.0005);
  CHECK(parse_price("bas=5").error().message.find("base") != std::string::npos);
  CHECK_FALSE(parse_price("base=0,stream=0"));
  CHECK_FALSE(parse_price("base=-1"));
  CHECK(parse_synthetic("rate=5,groups=3")->num_groups == 3);
  CHECK_FALSE(parse_synthetic("rate=fast"));
  CHECK_FALSE(parse_synthetic("rate=0"));
  CHECK_FALSE(make_cases({}, {"max_seqs=1"}));
  CHECK_FALSE(make_cases({}, {"policy=best"}));
}

TEST_CASE("a sweep is every combination", "[sim]") {
  const auto cases = make_cases({}, {"num_blocks=100,200", "policy=fcfs,fair", "replicas=2"});
  REQUIRE(cases.has_value());
  REQUIRE(cases->size() == 4);
  CHECK((*cases)[1].name == "num_blocks=200 policy=fcfs replicas=2");
  CHECK((*cases)[1].options.num_blocks == 200);
  CHECK((*cases)[3].options.scheduler.policy == SchedulerPolicy::kFair);
}

TEST_CASE("the timeline is sampled by time: a backlog behind the last arrival is seen", "[sim]") {
  SimOptions slow = fast(50'000, 16);
  slow.scheduler.max_num_seqs = 4;
  const SimReport report = simulated(slow, "requests=400,rate=1000,prompt=50,output=200");
  REQUIRE(report.timeline.size() > 50);
  const auto last_arrival_s = 400.0 / 1000.0 * 2.0;
  REQUIRE(report.duration_s > 4.0 * last_arrival_s);
  const auto behind = std::count_if(report.timeline.begin(), report.timeline.end(),
                                    [&](const TimelinePoint& point) { return point.time_s > last_arrival_s; });
  CHECK(behind * 2 > static_cast<std::ptrdiff_t>(report.timeline.size()));
  // The backlog shrinks: no point repeats the last arrival's backlog until the end.
  CHECK(report.timeline[report.timeline.size() / 2].num_waiting > report.timeline.back().num_waiting);
  for (std::size_t i = 1; i < report.timeline.size(); ++i)
    CHECK(report.timeline[i].time_s > report.timeline[i - 1].time_s);
}

TEST_CASE("reports are valid JSON and one self-contained page", "[sim]") {
  SimCase each{"quotes \" and <tags>", {}, simulated(fast(5'000, 16), "requests=50,rate=10,keys=2")};
  const auto json = nlohmann::json::parse(to_json({each, each}));
  CHECK(json.size() == 2);
  CHECK(json[0]["requests"] == 50);
  CHECK(json[0]["keys"].size() == 2);
  CHECK(json[0]["timeline"].size() > 1);
  const std::string html = to_html({each}, "a title");
  CHECK(html.find("<svg") != std::string::npos);
  CHECK(html.find("http") == std::string::npos);
  CHECK(html.find("src=") == std::string::npos);
  CHECK(html.find("<tags>") == std::string::npos);
  CHECK(html.find("All cases") == std::string::npos);
  // A sweep is compared in common plots, with the name of each case.
  const std::string sweep = to_html({each, each}, "a title");
  CHECK(sweep.find("All cases") != std::string::npos);
  CHECK(sweep.find("<tags>") == std::string::npos);
  CHECK(to_table({each}).find("quotes") != std::string::npos);
}

TEST_CASE("percentiles are within a hundredth", "[sim]") {
  sim::Distribution values;
  for (int i = 1; i <= 10'000; ++i)
    values.add(i * 0.001);
  CHECK(values.percentile(50) == Approx(5.0).epsilon(0.01));
  CHECK(values.percentile(99) == Approx(9.9).epsilon(0.01));
  CHECK(values.percentile(100) == Approx(10.0).epsilon(0.01));
  CHECK(values.mean() == Approx(5.0005));
  CHECK(sim::Distribution().percentile(50) == 0.0);
}

TEST_CASE("a tier below the pool serves what the pool had to give up", "[sim][.long]") {
  QUIRE_REQUIRE_MATERIAL(path, kConversation);
  SimOptions options = fast(3'000, kHashBlockSize);
  const SimReport without = simulated(options, *opened(path));
  options.tier_blocks = 200'000;
  const SimReport with = simulated(options, *opened(path));
  CHECK(with.num_output_tokens == without.num_output_tokens);
  CHECK(with.num_restored_blocks > 10'000);
  CHECK(with.num_cached_blocks > 2 * without.num_cached_blocks);
  options.tier_block_ms = 1e6;  // dearer than computing
  CHECK(simulated(options, *opened(path)).num_cached_blocks < with.num_cached_blocks);
}

TEST_CASE("a store that three replicas share serves what one pool of the summed size does", "[sim][.long]") {
  QUIRE_REQUIRE_MATERIAL(path, kConversation);
  SimOptions options = fast(5'000, kHashBlockSize);
  options.num_replicas = 3;
  const SimReport apart = simulated(options, *opened(path));
  options.shared_blocks = 20'000;  // blocks that are used in a pool are not renewed in the store: it needs more room
  const SimReport shared = simulated(options, *opened(path));
  SimOptions one = fast(15'000, kHashBlockSize);
  one.scheduler.max_num_seqs *= 3;
  const SimReport whole = simulated(one, *opened(path));
  CHECK(shared.num_requests == whole.num_requests);
  CHECK(shared.num_output_tokens == whole.num_output_tokens);
  CHECK(shared.hit_rate() >= 0.95 * whole.hit_rate());
  CHECK(apart.hit_rate() < 0.95 * whole.hit_rate());
  CHECK(shared.num_shared_reads > 10'000);
  CHECK(shared.num_shared_writes > 100'000);
}

TEST_CASE("prompts that some replicas compute for the others delay no other request's next token", "[sim]") {
  SimOptions options{.num_blocks = 20'000, .num_replicas = 3};
  options.shared_blocks = 100'000;
  options.shared_block_ms = 0.05;
  const std::string traffic = "requests=300,rate=0.6,prompt=2000,max=6000,output=100,seed=9";
  const SimReport together = simulated(options, traffic);
  options.num_prefill_replicas = 2;
  const SimReport split = simulated(options, traffic);
  CHECK(together.num_handed_over == 0);
  CHECK(split.num_handed_over == split.num_requests);
  CHECK(split.num_requests == together.num_requests);
  CHECK(split.num_output_tokens == together.num_output_tokens);
  CHECK(split.ttft_s.num_values() == together.ttft_s.num_values());
  CHECK(split.itl_s.num_values() == together.itl_s.num_values());
  // Less than a block, and the last token.
  CHECK(split.num_recomputed_tokens <= 16 * split.num_requests);
  CHECK(split.itl_s.percentile(99) < together.itl_s.percentile(99) / 2);
  SECTION("what the store lost is computed again") {
    options.shared_blocks = 10;
    const SimReport lost = simulated(options, traffic);
    CHECK(lost.num_handed_over == lost.num_requests);
    CHECK(lost.num_output_tokens == split.num_output_tokens);
    CHECK(lost.num_recomputed_tokens > 100 * split.num_recomputed_tokens);
  }
  SECTION("a slow store delays first tokens, and each prompt is handed over") {
    options.shared_block_ms = 20.0;
    const SimReport slow = simulated(options, traffic);
    CHECK(slow.num_handed_over == slow.num_requests);
    CHECK(slow.ttft_s.percentile(50) > 1.5 * split.ttft_s.percentile(50));
  }
  SECTION("without a store, or without a replica for answers") {
    options.shared_blocks = 0;
    const auto source = make_synthetic(*parse_synthetic(traffic));
    CHECK_FALSE(simulate(options, *source).has_value());
    options.shared_blocks = 10;
    options.num_prefill_replicas = 3;
    CHECK_FALSE(simulate(options, *source).has_value());
  }
}

TEST_CASE("a prompt that is handed over waits for its blocks to be written and read, and no longer", "[sim]") {
  const TemporaryFile trace(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 9000, \"input_length\": 1000, \"output_length\": 1, \"hash_ids\": [3, 4]}\n");
  SimOptions options = fast(1'000, 16);
  options.price = {.fixed = 0.0, .stream = 0.0, .prompt_token = 1e-3};
  options.num_replicas = 2;
  options.shared_blocks = 1'000;
  options.shared_block_ms = 1.0;
  options.shared_latency_ms = 1.0;
  options.can_end_early = GENERATE(true, false);
  options.steps_at_once = GENERATE(0, 2);
  const double whole_s = simulated(options, *opened(trace.path())).ttft_s.percentile(50);
  options.num_prefill_replicas = 1;
  const SimReport split = simulated(options, *opened(trace.path()));
  CHECK(split.num_handed_over == 2);
  // 62 blocks, each a millisecond to the store, some of it while others are computed, and one from it.
  for (const double share : {50.0, 99.0}) {
    CHECK(split.ttft_s.percentile(share) > whole_s + 0.03);
    CHECK(split.ttft_s.percentile(share) < whole_s + 0.2);
  }
}

TEST_CASE("replicas that share a machine slow each other down while they compute", "[sim]") {
  // Each takes a second alone; the second one comes when the first is half done.
  const TemporaryFile trace(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 500, \"input_length\": 1000, \"output_length\": 1, \"hash_ids\": [3, 4]}\n");
  SimOptions options = fast(1'000, 16);
  options.price = {.fixed = 0.0, .stream = 0.0, .prompt_token = 1e-3};
  options.num_replicas = 2;
  options.can_end_early = GENERATE(true, false);
  const auto first_token_s = [&](std::int32_t steps_at_once) {
    options.steps_at_once = steps_at_once;
    const SimReport report = simulated(options, *opened(trace.path()));
    CHECK(report.num_output_tokens == 2);
    CHECK(report.duration_s == Approx(report.ttft_s.percentile(99) + 0.5).epsilon(0.02));  // the second one's
    return report.ttft_s.percentile(50);
  };
  CHECK(first_token_s(0) == Approx(1.0).epsilon(0.02));
  CHECK(first_token_s(2) == Approx(1.0).epsilon(0.02));
  // Both share the machine for the first one's remaining half second; then the second has it alone.
  CHECK(first_token_s(1) == Approx(1.5).epsilon(0.02));
}

TEST_CASE("replicas with a machine each are simulated alike one by one and together", "[sim]") {
  const std::string traffic = "requests=300,rate=0.6,prompt=2000,max=6000,output=100,shared=1024,groups=20,seed=9";
  SimOptions options{.num_blocks = 20'000, .num_replicas = 3};
  options.shared_blocks = 100'000;
  options.num_prefill_replicas = GENERATE(0, 2);
  const SimReport apart = simulated(options, traffic);
  options.steps_at_once = 3;
  // Simulated one by one, a replica sees the writes of replicas simulated after it at the next arrival only.
  const SimReport together = simulated(options, traffic);
  CHECK(together.num_output_tokens == apart.num_output_tokens);
  CHECK(together.num_handed_over == apart.num_handed_over);
  for (const double share : {50.0, 90.0, 99.0}) {
    CHECK(together.ttft_s.percentile(share) == Approx(apart.ttft_s.percentile(share)).epsilon(0.05));
    CHECK(together.itl_s.percentile(share) == Approx(apart.itl_s.percentile(share)).epsilon(0.05));
  }
}

TEST_CASE("a shared store is used where that costs less than computing", "[sim]") {
  SimOptions options = fast(20'000, 16);
  options.num_replicas = 3;
  options.shared_blocks = 100'000;
  options.shared_block_ms = 0.01;
  const std::string traffic = "requests=600,rate=20,prompt=1500,max=4000,output=20,shared=1024,groups=200,seed=7";
  const SimReport cheap = simulated(options, traffic);
  CHECK(cheap.num_shared_reads > 1'000);
  const SimReport again = simulated(options, traffic);
  CHECK(again.num_shared_reads == cheap.num_shared_reads);
  CHECK(again.duration_s == cheap.duration_s);
  SimOptions without = options;
  without.shared_blocks = 0;
  const SimReport none = simulated(without, traffic);
  CHECK(none.num_shared_reads + none.num_shared_writes == 0);
  CHECK(none.num_output_tokens == cheap.num_output_tokens);
  CHECK(cheap.num_computed_tokens < none.num_computed_tokens);
  SECTION("blocks that take too long") {
    options.shared_block_ms = 500.0;
  }
  SECTION("answers that take too long") {
    options.shared_latency_ms = 5'000.0;
  }
  const SimReport dear = simulated(options, traffic);
  CHECK(dear.num_output_tokens == none.num_output_tokens);
  CHECK(dear.num_shared_reads < cheap.num_shared_reads / 5);
}

TEST_CASE("one replica that shares a store with none computes no less and no more", "[sim]") {
  const std::string traffic = "requests=300,rate=20,prompt=1500,max=4000,output=20,shared=1024,groups=20,seed=7";
  SimOptions options = fast(20'000, 16);
  const SimReport alone = simulated(options, traffic);
  options.shared_blocks = 100'000;
  const SimReport with = simulated(options, traffic);
  CHECK(with.num_computed_tokens == alone.num_computed_tokens);
  CHECK(with.num_shared_reads == 0);
}

TEST_CASE("preempted sequences swap where that is cheaper, and their tokens are not computed twice", "[sim]") {
  SimOptions options = fast(400, 16);
  options.scheduler.max_num_seqs = 64;
  options.tier_blocks = 10'000;
  const std::string traffic = "requests=500,rate=50,prompt=200,output=200,max=2000,seed=3";
  options.tier_block_ms = 0.001;
  const SimReport cheap = simulated(options, traffic);
  CHECK(cheap.num_swaps == cheap.num_preemptions);
  options.tier_block_ms = 100.0;
  const SimReport dear = simulated(options, traffic);
  CHECK(dear.num_preemptions > 0);
  CHECK(dear.num_swaps < dear.num_preemptions / 10);
  CHECK(cheap.num_computed_tokens < dear.num_computed_tokens);
  CHECK(cheap.num_output_tokens == dear.num_output_tokens);
}
