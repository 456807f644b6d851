// Number of drafts that a step verifies: exact choices under known prices.
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <map>

#include "core/kv/moves/lower_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/sched/scheduler_scene.h"

using namespace quire;
using namespace quire::test;

namespace {

using Counts = std::vector<std::int64_t>;

// Streams of one prompt token each, whose prices are learned from steps with the price given: 10 ms, and
// `stream_ms` for each row.
class DraftedScene {
 public:
  explicit DraftedScene(int num_streams, double stream_ms, SchedulerOptions options = {}, std::int64_t num_blocks = 400)
      : kv_(num_blocks, 4, false), scheduler(options, kv_), stream_s_(stream_ms / 1000.0) {
    for (int i = 0; i < num_streams; ++i)
      add(3);
    if (num_streams > 0) step();
    // Rows of every number are seen, so that the price of a row is known.
    for (int i = 0; i < 120 && stream_ms > 0.0; ++i) {
      for (Sequence& sequence : sequences)
        draft(sequence, i % 5, 1.0);
      step();
    }
    clear_drafts();
  }

  Sequence& add(int num_prompt_tokens, int max_tokens = 100'000) {
    auto request = std::make_shared<Request>(request_of(made_tokens(num_prompt_tokens, 1), max_tokens));
    request->sampling.max_tokens = 500;
    request->arrival = Clock::time_point(std::chrono::milliseconds(sequences.size()));
    Sequence& sequence = sequences.emplace_back();
    sequence.id = SequenceId{static_cast<std::int64_t>(sequences.size()) - 1};
    sequence.tokens = request->prompt;
    sequence.num_prompt_tokens = num_prompt_tokens;
    sequence.request = std::move(request);
    scheduler.add(sequence);
    return sequence;
  }

  static void draft(Sequence& sequence, int count, double rate) {
    sequence.drafts.assign(static_cast<std::size_t>(count), TokenId{7});
    sequence.draft_rate = rate;
  }
  void clear_drafts() {
    for (Sequence& sequence : sequences)
      sequence.drafts.clear();
  }

  // Drafts of each entry; all of them turn out wrong but for `num_accepted`.
  Counts step(std::int64_t num_accepted = 0) {
    return step_of([this](double num_rows) { return 0.01 + stream_s_ * num_rows; }, num_accepted);
  }
  // Steps with the given times by number of rows.
  template <class SecondsOfRows>
  Counts step_of(const SecondsOfRows& seconds_of, std::int64_t num_accepted = 0) {
    scheduler.schedule(plan, limits);
    Counts counts;
    StepOutput output;
    for (const StepEntry& entry : plan.entries) {
      counts.push_back(entry.num_drafts);
      output.entries.push_back({entry.num_tokens, std::min(num_accepted, entry.num_drafts)});
    }
    output.seconds = seconds_of(plan.terms.num_streams) + 0.001 * plan.terms.num_prompt_tokens;
    scheduler.commit(plan, output);
    for (std::size_t i = 0; i < plan.entries.size(); ++i) {
      Sequence& sequence = *plan.entries[i].sequence;
      if (sequence.num_computed < sequence.num_tokens()) continue;
      const std::int64_t num_new = 1 + output.entries[i].num_accepted;
      for (std::int64_t k = 0; k < num_new; ++k)
        sequence.tokens.push_back(TokenId{7});
    }
    return counts;
  }

 private:
  KvCache kv_;

 public:
  Scheduler scheduler;
  StepLimits limits;
  StepPlan plan;
  std::deque<Sequence> sequences;

 private:
  const double stream_s_;
};

}  // namespace

TEST_CASE("drafts are verified while they yield more for their time than the streams do", "[scheduler][draft]") {
  // A row takes 1 ms, one stream 11 ms. At rate 0.5 the third draft is right once in 8 times: 8 ms for a token, while
  // the step with two drafts yields 1.75 tokens in 13 ms. That is below the margin.
  DraftedScene scene(1, 1.0);
  scene.draft(scene.sequences[0], 8, 0.5);
  CHECK(scene.step() == Counts{2});
  scene.draft(scene.sequences[0], 8, 0.95);
  CHECK(scene.step() == Counts{8});
  scene.draft(scene.sequences[0], 8, 0.05);
  CHECK(scene.step() == Counts{0});
}

TEST_CASE("where the fifth row is expensive three drafts are verified, and other numbers now and then",
          "[scheduler][draft]") {
  // Four rows or fewer take 16 ms, five to eight 22 ms, and so on. Three drafts of rate 0.7 yield 2.53 tokens in 16 ms
  // and four 2.77 in 22; a price that is linear in rows cannot tell.
  const auto in_tiles = [](double num_rows) { return 0.01 + 0.006 * std::ceil(num_rows / 4.0); };
  DraftedScene steady(1, 1.0);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < 800; ++i) {
    steady.draft(steady.sequences[0], 4, 0.7);
    const std::int64_t count = steady.step_of(in_tiles)[0];
    if (i >= 400) ++counts[count];
  }
  CHECK(counts.at(3) > 370);
  CHECK(counts.at(2) > 0);
  CHECK(counts.at(4) > 0);
  // The machine is twice as slow for a while: this changes nothing about rows.
  DraftedScene scene(1, 1.0);
  int num_threes = 0;
  for (int i = 0; i < 800; ++i) {
    scene.draft(scene.sequences[0], 4, 0.7);
    const double pace = i / 50 % 2 == 0 ? 1.0 : 2.0;
    const std::int64_t count = scene.step_of([&](double num_rows) { return pace * in_tiles(num_rows); })[0];
    if (i >= 400 && count == 3) ++num_threes;
  }
  CHECK(num_threes > 340);
}

TEST_CASE("where rows are dear drafts are left alone", "[scheduler][draft]") {
  DraftedScene scene(4, 10.0);  // 4 rows in 50 ms: a token takes 12.5 ms, a row 10 ms
  for (Sequence& sequence : scene.sequences)
    scene.draft(sequence, 4, 0.7);
  CHECK(scene.step() == Counts{0, 0, 0, 0});
  for (Sequence& sequence : scene.sequences)
    scene.draft(sequence, 4, 0.99);
  CHECK(scene.step()[0] > 0);
}

TEST_CASE("the likeliest drafts of all sequences are taken first, in the order of importance", "[scheduler][draft]") {
  DraftedScene scene(3, 0.2);
  scene.draft(scene.sequences[0], 4, 0.5);
  scene.draft(scene.sequences[1], 4, 0.9);
  scene.draft(scene.sequences[2], 4, 0.5);
  scene.limits.max_seconds = 0.01 + 9.5 * 0.0002;  // room for six drafts
  const Counts counts = scene.step();
  CHECK(counts == Counts{1, 4, 1});
}

TEST_CASE("no step verifies more drafts than there are logits for", "[scheduler][draft]") {
  DraftedScene scene(12, 0.01);
  for (Sequence& sequence : scene.sequences)
    scene.draft(sequence, 8, 1.0);
  std::int64_t sum = 0;
  for (const std::int64_t count : scene.step())
    sum += count;
  CHECK(sum == kMostDraftsOfStep);
}

TEST_CASE("before prices are known a few drafts are verified", "[scheduler][draft]") {
  DraftedScene fresh(0, 0.0);
  Sequence& sequence = fresh.add(3);
  fresh.scheduler.schedule(fresh.plan);
  fresh.scheduler.commit(fresh.plan, {.seconds = 0.0});  // no price is learned from it
  sequence.tokens.push_back(TokenId{1});
  fresh.draft(sequence, 8, 0.9);
  fresh.scheduler.schedule(fresh.plan);
  REQUIRE(fresh.plan.entries.size() == 1);
  CHECK(fresh.plan.entries[0].num_drafts == 2);
  CHECK(fresh.plan.entries[0].num_tokens == 3);
}

TEST_CASE("drafts that are not those behind the last tokens are not verified", "[scheduler][draft]") {
  DraftedScene scene(4, 0.5);
  for (Sequence& sequence : scene.sequences)
    DraftedScene::draft(sequence, 4, 0.9);
  scene.limits.takes_drafts = false;
  CHECK(scene.step() == Counts{0, 0, 0, 0});
  scene.limits.takes_drafts = true;
  CHECK(scene.step() == Counts{4, 4, 4, 4});
}

TEST_CASE("the target between tokens bounds drafts while another streams", "[scheduler][draft]") {
  SchedulerOptions options{.max_num_seqs = 8};
  options.target_itl_ms = 15.0;
  DraftedScene pair(2, 1.0, options);  // 12 ms without drafts
  for (Sequence& sequence : pair.sequences)
    pair.draft(sequence, 8, 1.0);
  const Counts counts = pair.step();
  CHECK(counts[0] + counts[1] == 2);
  DraftedScene alone(1, 1.0, options);
  alone.draft(alone.sequences[0], 8, 1.0);
  CHECK(alone.step() == Counts{8});
}

TEST_CASE("drafts leave half of the tokens of a step to prompts", "[scheduler][draft]") {
  DraftedScene scene(1, 0.1, {.max_num_seqs = 8, .max_num_batched_tokens = 9});
  scene.add(40);
  scene.draft(scene.sequences[0], 8, 1.0);
  CHECK(scene.step() == Counts{4, 0});
  CHECK(scene.plan.num_prompt_tokens == 4);
}

TEST_CASE("nothing is preempted for a draft, and none takes a block that others need next", "[scheduler][draft]") {
  // Two streams of up to two blocks each, in a pool of five.
  DraftedScene scene(2, 0.1, {.max_num_seqs = 4}, 200);
  Sequence& first = scene.sequences[0];
  scene.draft(first, 8, 1.0);
  scene.draft(scene.sequences[1], 8, 1.0);
  CHECK(scene.step() == Counts{8, 8});
  CHECK(scene.plan.preempted.empty());

  DraftedScene small(2, 0.0, {.max_num_seqs = 4}, 3);  // prices unknown: two drafts each
  // Three blocks, one held by each: a draft's block would leave the other none for its next.
  while (small.sequences[0].num_tokens() % 4 != 0)
    small.step();
  small.draft(small.sequences[0], 2, 1.0);
  small.draft(small.sequences[1], 2, 1.0);
  CHECK(small.step() == Counts{0, 0});
  CHECK(small.plan.preempted.empty());
}

// A round of drafting writes before the step, whose moves read what the block had.
TEST_CASE("a draft gets no block whose former content is still to be copied to a tier", "[scheduler][draft]") {
  Scene scene(SchedulerOptions{}, 5, true);
  HostTier host(1 << 20);
  LowerTier tier(scene.kv, {.block = 64}, &host, nullptr);
  scene.add_short(12, 1);
  scene.step();
  Sequence& running = scene.add(7);
  scene.step();
  REQUIRE(scene.kv.pool().num_free() == 0);

  CHECK(scene.scheduler.take_room_for_drafts(running, 4) == 0);
  std::vector<BlockMove> moves;
  tier.take_moves(moves);
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].block == running.table.blocks.back());
  CHECK(scene.scheduler.take_room_for_drafts(running, 4) == 4);
  tier.finish_moves(moves, {});
}

TEST_CASE("accepted drafts count as computed, rejected ones do not", "[scheduler][draft]") {
  DraftedScene scene(1, 0.1);
  Sequence& sequence = scene.sequences[0];
  const std::int64_t num_computed = sequence.num_computed;
  scene.draft(sequence, 8, 1.0);
  CHECK(scene.step(3) == Counts{8});
  CHECK(sequence.num_computed == num_computed + 4);
  CHECK(sequence.num_remaining() == 1);
  scene.clear_drafts();
  CHECK(scene.step() == Counts{0});
  CHECK(sequence.num_computed == num_computed + 5);
}

TEST_CASE("drafts of an entry that ends early are not kept", "[scheduler][draft]") {
  DraftedScene scene(1, 0.1);
  Sequence& sequence = scene.sequences[0];
  scene.draft(sequence, 8, 1.0);
  scene.scheduler.schedule(scene.plan);
  const std::int64_t num_computed = sequence.num_computed;
  StepOutput output;
  output.end_early(scene.plan, 4);  // the last token, and three drafts
  output.entries[0].num_accepted = 2;
  scene.scheduler.commit(scene.plan, output);
  CHECK(sequence.num_computed == num_computed + 3);
}

TEST_CASE("a pending token that is computed with a returning prompt is not found by others before it is known",
          "[scheduler]") {
  // Preempted while a step in flight draws its eighth token, and back at once: with it the second block would be full.
  KvCache kv(20, 4, true);
  Scheduler scheduler({.max_num_seqs = 2}, kv);
  StepPlan plan;
  Sequence sequence;
  sequence.request = std::make_shared<const Request>(request_of(made_tokens(3, 1), 20));
  sequence.tokens = made_tokens(7, 1);
  sequence.num_prompt_tokens = 3;
  sequence.num_pending = 1;
  scheduler.add(sequence);
  scheduler.schedule(plan);
  REQUIRE(plan.entries.size() == 1);
  REQUIRE(plan.entries[0].num_tokens == 8);
  scheduler.commit(plan, {});
  CHECK(sequence.num_computed == 8);
  BlockTable other;
  kv.open(other, "");
  CHECK(kv.match_tokens(kv.match(other, made_tokens(9, 1), 8)) == 7);
  kv.close(other);
  scheduler.finish(sequence);
}
