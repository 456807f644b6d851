// A small model that drafts for a large one: the rows it has computed of each block, the time that catching up may
// take, and equal texts with and without it.
#include <catch2/catch.hpp>
#include <thread>

#include "core/draft/acceptance.h"
#include "core/draft/drafted_rows.h"
#include "core/draft/time_model.h"
#include "core/engine/step_turns.h"
#include "core/model/tools/inspect.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/engine/served_model.h"

using namespace quire;
using namespace quire::test;

namespace {

// Fixed prices decide how much is drafted, not this machine's, so that it is the same in each run.
constexpr StepPrice kDraftedPrice{.fixed = 0.01, .stream = 0.0005, .prompt_token = 0.0001};

HarnessOptions with_fake_drafter(int right_percent, std::int64_t num_blocks = 60) {
  HarnessOptions options{.num_blocks = num_blocks};
  options.deferred_seed.reset();
  options.right_drafts_percent = right_percent;
  options.drafts_by = DraftsBy::kModel;
  options.price = kDraftedPrice;
  options.engine.speculation = {SpeculationMethod::kDraftModel, 4};
  options.engine.scheduler.max_num_seqs = 8;
  return options;
}

// A tiny model of a family, written once.
std::filesystem::path tiny_model(const std::string& shape, std::uint64_t seed = 1) {
  static const TemporaryFolder kFolder;
  const std::filesystem::path path = kFolder / (shape + "-" + std::to_string(seed) + ".gguf");
  if (std::filesystem::exists(path)) return path;
  SynthSpec spec = *find_synth_shape(shape);
  spec.types = *find_synth_types("Q8_0");
  spec.seed = seed;
  write_synthetic_gguf(spec, path, {});
  return path;
}

// Requests of every kind that drafting could affect.
Request drafted_request(int i) {
  Request request = request_of(made_tokens(10 + 23 * (i % 7), i % 4, 300), 30 + 5 * (i % 6));
  SamplingParams& sampling = request.sampling;
  sampling.seed = static_cast<std::uint64_t>(i);
  sampling.temperature = i % 3 == 0 ? 0.0F : 0.8F;
  if (i % 2 == 0) sampling.num_logprobs = 2;
  if (i % 4 == 1) sampling.repetition_penalty = 1.2F;
  if (i % 5 == 3) sampling.frequency_penalty = 0.4F;
  if (i % 5 == 2) request.num_choices = 3;
  if (i % 6 == 5) sampling.num_prompt_logprobs = 1;
  if (i % 7 == 4) sampling.stop_token_ids = made_tokens(6, i, 300);
  return request;
}

struct DraftedTexts {
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  EngineStats stats;
};

DraftedTexts drafted_texts(const std::filesystem::path& model, const std::filesystem::path& drafter,
                           std::int64_t num_blocks, EngineOptions options) {
  options.speculation = {drafter.empty() ? SpeculationMethod::kNone : SpeculationMethod::kDraftModel, 4};
  ServedModel served(model, num_blocks, options, kDraftedPrice, drafter);
  DraftedTexts texts;
  for (int i = 0; i < 20; ++i)
    texts.sinks.push_back(served.submit(drafted_request(i)));
  served.run();
  texts.stats = served.engine->stats();
  CHECK(texts.stats.num_blocks_used == 0);
  return texts;
}

void check_same_texts(const DraftedTexts& got, const DraftedTexts& expected) {
  for (std::size_t i = 0; i < expected.sinks.size(); ++i) {
    INFO("request " << i);
    for (std::size_t choice = 0; choice < expected.sinks[i]->choices.size(); ++choice) {
      const ChoiceOutput& with = got.sinks[i]->choices[choice];
      const ChoiceOutput& without = expected.sinks[i]->choices[choice];
      CHECK(with.tokens == without.tokens);
      CHECK(with.prompt_logprobs.size() == without.prompt_logprobs.size());
      REQUIRE(with.logprobs.size() == without.logprobs.size());
      for (std::size_t k = 0; k < with.logprobs.size(); ++k) {
        CHECK(with.logprobs[k].logprob == without.logprobs[k].logprob);
        CHECK(with.logprobs[k].top == without.logprobs[k].top);
      }
    }
  }
}

EngineOptions roomy_options() {
  EngineOptions options;
  options.scheduler.max_num_seqs = 8;
  options.num_states = 24;
  return options;
}

// Prompts are cut; sequences are preempted and return from the host.
EngineOptions cramped_options() {
  EngineOptions options = roomy_options();
  options.scheduler.max_num_batched_tokens = 24;
  options.num_states = 10;
  options.kv_cache.host_tier_bytes = 1 << 22;
  options.scheduler.preemption = Preemption::kSwap;
  return options;
}

// After a long prompt alone, the price of streams would be learned from many steps.
void learn_prices(Harness& harness) {
  Request request = request_of(made_tokens(3, 99), 30);
  request.speculation = {SpeculationMethod::kNone};
  harness.submit(std::move(request));
  harness.run();
}

std::vector<TokenId> answer_of(const HarnessOptions& options, const Request& request) {
  Harness harness(options);
  const auto sink = harness.submit(request);
  harness.run();
  return sink->choices[0].tokens;
}

}  // namespace

TEST_CASE("the rows that a drafting model has of a block are those computed since it was written", "[engine][draft]") {
  DraftedRows rows(8, 4);
  const std::vector<BlockId> blocks = block_ids({5, 2, 7});
  CHECK(rows.count(blocks, 12) == 0);
  rows.add(blocks, 0, 6);
  CHECK(rows.count(blocks, 12) == 6);
  CHECK(rows.count(blocks, 5) == 5);
  CHECK(rows.count(block_ids({5, 3}), 8) == 4);
  CHECK(rows.count(block_ids({2}), 4) == 2);
  rows.add(blocks, 6, 12);
  CHECK(rows.count(blocks, 12) == 12);
  rows.note_copied(BlockId{7}, BlockId{1});
  rows.note_written(blocks, 9, 10);
  CHECK(rows.count(blocks, 12) == 9);
  CHECK(rows.count(block_ids({5, 2, 1}), 12) == 12);
  rows.note_written(blocks, 3, 9);
  CHECK(rows.count(blocks, 12) == 3);
  rows.add(blocks, 3, 9);
  CHECK(rows.count(blocks, 12) == 9);
  rows.note_replaced(BlockId{2});
  CHECK(rows.count(blocks, 12) == 4);
}

TEST_CASE("catching up costs a share of the time at most where drafts are never right", "[engine][draft]") {
  DraftTimeModel times;
  CHECK(times.may_catch_up(false));
  CHECK(times.rows_within(1.0) == DraftTimeModel::kMostRows);
  double spent = 0.0;
  for (int step = 0; step < 100'000; ++step) {
    times.note_step(0.1);
    if (!times.may_catch_up(false)) continue;
    times.note_lacking(50, 1.0);
    spent += 1.0;
  }
  CHECK(spent < 0.0102 * 10'000);
  CHECK(times.rows_within(0.1) == DraftTimeModel::kLeastRows);
  CHECK(times.rows_within(2.0) == 100);
  // Other sequences get the time that drafts save; if drafts are right, some are begun in advance.
  times.set_step_prices(5.0, 0.25);
  times.note_verified(4, 1);
  CHECK(times.may_catch_up(false));
  DraftTimeModel trusting;
  MeanAcceptance acceptance;
  CHECK_FALSE(acceptance.is_high());
  for (int i = 0; i < 20; ++i)
    acceptance.note(4, 4);
  trusting.note_lacking(10, 1.9);
  CHECK(trusting.may_catch_up(acceptance.is_high()));
  trusting.note_lacking(10, 0.2);
  CHECK_FALSE(trusting.may_catch_up(acceptance.is_high()));
}

TEST_CASE("a drafting model has computed every row before it drafts, and yields its tokens in fewer steps",
          "[engine][draft]") {
  const Request request = request_of(made_tokens(300, 1), 120);
  HarnessOptions options = with_fake_drafter(100, 200);
  HarnessOptions plain = options;
  plain.engine.speculation.method = SpeculationMethod::kNone;
  Harness harness(options);
  learn_prices(harness);
  const auto sink = harness.submit(request);
  const int num_steps = harness.run();
  CHECK(sink->choices[0].tokens == answer_of(plain, request));
  CHECK(harness.model.num_wrong_rows == 0);
  CHECK(harness.engine.stats().num_accepted_tokens == harness.engine.stats().num_draft_tokens);
  CHECK(harness.engine.stats().num_accepted_tokens > 50);
  CHECK(num_steps < 75);
  // Computes each row once, and a few rows of drafts that were never verified.
  CHECK(harness.model.num_drafter_rows < 300 + 120 + 30);
}

TEST_CASE("what a drafting model computed of a prefix is there for all that share it", "[engine][draft]") {
  HarnessOptions options = with_fake_drafter(100, 300);
  Harness harness(options);
  learn_prices(harness);
  const std::vector<TokenId> prefix = made_tokens(200, 1);
  harness.submit(request_of(joined(prefix, made_tokens(3, 2)), 40));
  harness.run();
  const std::int64_t num_before = harness.model.num_drafter_rows;
  CHECK(num_before > 240);
  Request forked = request_of(joined(prefix, made_tokens(7, 3)), 30);
  forked.num_choices = 3;
  forked.sampling.temperature = 0.8F;
  forked.sampling.seed = 4;
  const auto sink = harness.submit(forked);
  harness.run();
  CHECK(sink->choices[0].tokens != sink->choices[1].tokens);
  CHECK(harness.model.num_wrong_rows == 0);
  CHECK(harness.model.num_drafter_rows - num_before < 150);
}

TEST_CASE("a drafting model that is never right costs little and stops", "[engine][draft]") {
  HarnessOptions options = with_fake_drafter(0, 300);
  Harness harness(options);
  learn_prices(harness);
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int i = 0; i < 8; ++i)
    sinks.push_back(harness.submit(request_of(made_tokens(64, i), 40)));
  harness.run();
  CHECK(harness.engine.stats().num_accepted_tokens == 0);
  CHECK(harness.engine.stats().num_draft_tokens < 40);
  // The first sequences earned nothing, so most others are not caught up.
  CHECK(harness.model.num_drafter_rows < 64 * 8 / 2);
}

TEST_CASE("rounds of drafting wait for the engine's turn, as its steps do", "[engine][draft]") {
  HarnessOptions options = with_fake_drafter(100);
  options.engine.turns = std::make_shared<StepTurns>();
  Harness harness(options);
  const auto sink = harness.submit(request_of(made_tokens(6, 1), 12));
  while (sink->choices[0].tokens.empty())
    harness.step();
  const std::int64_t num_before = harness.model.num_rounds;
  StepTurns::Member other(options.engine.turns.get());
  std::thread engine;
  {
    const StepTurns::Turn turn(other);
    engine = std::thread([&] { harness.step(); });
    while (options.engine.turns->num_waiting() == 0)
      std::this_thread::yield();
    CHECK(harness.model.num_rounds == num_before);
    CHECK(harness.engine.stats().awaits_others == 1);
  }
  engine.join();
  CHECK(harness.model.num_rounds > num_before);
  harness.run();
  CHECK(sink->finished());
}

TEST_CASE("another model's drafts change no bit, whatever is asked and however little room there is",
          "[engine][model][draft]") {
  // Full attention, windows, latent attention, recurrent layers.
  for (const char* const shape : {"tiny-smollm3", "tiny-gemma3", "tiny-deepseek2", "tiny-qwen35"}) {
    INFO(shape);
    const std::filesystem::path model = tiny_model(shape);
    const DraftedTexts plain = drafted_texts(model, {}, 400, roomy_options());
    CHECK(plain.stats.num_drafts == 0);
    for (const char* const drafter : {"tiny-smollm3", "tiny-gemma3"}) {
      INFO(drafter);
      const DraftedTexts roomy = drafted_texts(model, tiny_model(drafter), 400, roomy_options());
      check_same_texts(roomy, plain);
      const DraftedTexts cramped = drafted_texts(model, tiny_model(drafter), 34, cramped_options());
      check_same_texts(cramped, plain);
      CHECK(cramped.stats.num_preemptions > 0);
      CHECK(roomy.stats.num_draft_tokens > 0);
    }
  }
}

TEST_CASE("a model that drafts for itself is always right: its rows are all there and in their own layers",
          "[engine][model][draft]") {
  for (const char* const shape : {"tiny-smollm3", "tiny-gemma3", "tiny-deepseek2", "tiny-mixtral"}) {
    INFO(shape);
    const std::filesystem::path model = tiny_model(shape);
    const DraftedTexts plain = drafted_texts(model, {}, 400, roomy_options());
    for (const bool is_cramped : {false, true}) {
      const DraftedTexts texts =
          drafted_texts(model, model, is_cramped ? 34 : 400, is_cramped ? cramped_options() : roomy_options());
      check_same_texts(texts, plain);
      CHECK(texts.stats.num_accepted_tokens > 100);
      CHECK(texts.stats.num_accepted_tokens == texts.stats.num_draft_tokens);
    }
  }
}

TEST_CASE("layers with a window keep parts alone beside a drafting model", "[engine][model][draft][window]") {
  const std::filesystem::path model = tiny_model("tiny-gemma3");
  const DraftedTexts plain = drafted_texts(model, {}, 400, roomy_options());
  EngineOptions options = roomy_options();
  options.num_window_parts = 40;
  const DraftedTexts windowed = drafted_texts(model, model, 200, options);
  check_same_texts(windowed, plain);
  CHECK(windowed.stats.num_accepted_tokens > 100);
}

TEST_CASE("a model that cannot draft for another is refused with the reason", "[engine][model][draft]") {
  const auto reason = [](const std::filesystem::path& model, const std::filesystem::path& drafter) {
    return why_not_drafter(*open_model(model), *open_model(drafter));
  };
  const std::filesystem::path plain = tiny_model("tiny-smollm3");
  CHECK(reason(plain, plain).empty());
  CHECK(reason(plain, tiny_model("tiny-gemma3")).empty());
  CHECK(reason(tiny_model("tiny-qwen35"), plain).empty());
  CHECK(reason(plain, tiny_model("tiny-qwen35")) == "its recurrent layers cannot go back behind a draft that is wrong");
  CHECK(reason(plain, tiny_model("tiny-embedder")) == "it generates no text");
  CHECK(reason(tiny_model("tiny-embedder"), plain) == "the model that it is to draft for generates no text");
  const std::string other = reason(plain, source_folder() / "deploy/demo-model/quire-demo.gguf");
  CHECK(other.find("its vocabulary is another one") == 0);
}

TEST_CASE("the memory plan and what inspecting shows count the drafting model", "[engine][model][draft]") {
  const std::filesystem::path path = tiny_model("tiny-gemma3");
  const std::filesystem::path small = tiny_model("tiny-smollm3");
  const auto model = open_model(path);
  const auto drafter = open_model(small);
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const ServingLimits limits{.max_num_seqs = 4};
  const MemoryNeeds alone = memory_needs(*model, *backend, {}, limits);
  const MemoryNeeds of_small = memory_needs(*drafter, *backend, {}, limits);
  const MemoryNeeds both = memory_needs(*model, *backend, {}, limits, drafter.get());
  CHECK(both.weight_bytes == alone.weight_bytes + of_small.weight_bytes);
  CHECK(both.kv_block_bytes == alone.kv_block_bytes + of_small.kv_block_bytes);
  CHECK(both.window_part_bytes == alone.window_part_bytes);
  CHECK(both.activation_bytes > alone.activation_bytes);
  const auto built = build_with_drafter(*model, *drafter, *backend, [](auto, auto) {});
  KvLayout layout = built->kv_layout();
  layout.num_blocks = 1;
  CHECK(backend->kv_block_bytes(layout) == both.kv_block_bytes);
  const MachineMemory machine{.available = 1ULL << 30, .limited_by = "the machine"};
  const std::string plain = inspect_model(path, *backend, {}, limits, machine);
  const std::string shown = inspect_model(path, *backend, {}, limits, machine, {}, small);
  CHECK(plain.find("drafts by") == std::string::npos);
  CHECK(shown.find("drafts by") != std::string::npos);
  CHECK(shown.find(plan_memory(both, {}, machine).describe()) != std::string::npos);
}

TEST_CASE("a drafting model with fewer tokens than the model drafts, and reads the others as some token",
          "[engine][model][draft]") {
  SynthSpec spec = *find_synth_shape("tiny-smollm3");
  REQUIRE(spec.family);
  spec.family->keys += " v=540";
  spec.types = *find_synth_types("Q8_0");
  const TemporaryFolder folder;
  const std::filesystem::path wide = folder / "wide.gguf";
  write_synthetic_gguf(spec, wide, {});
  const std::filesystem::path narrow = tiny_model("tiny-smollm3");
  REQUIRE(open_model(wide)->info().vocab_size == 540);
  CHECK(why_not_drafter(*open_model(wide), *open_model(narrow)).empty());
  const auto texts = [&](const std::filesystem::path& drafter) {
    EngineOptions options = roomy_options();
    options.speculation = {drafter.empty() ? SpeculationMethod::kNone : SpeculationMethod::kDraftModel, 4};
    ServedModel served(wide, 100, options, kDraftedPrice, drafter);
    Request request = request_of(made_tokens(30, 1, 300), 60);
    request.prompt.back() = TokenId{535};
    request.sampling.temperature = 1.5F;
    request.sampling.seed = 3;
    const auto sink = served.submit(request);
    served.run();
    if (!drafter.empty()) CHECK(served.engine->stats().num_draft_tokens > 0);
    return sink->choices[0].tokens;
  };
  CHECK(texts(narrow) == texts({}));
}
