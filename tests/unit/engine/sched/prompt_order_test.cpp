// Division of a step among the prompts in progress, token by token: the shortest remainder first, a fixed share for the
// oldest, by key under kFair, by class under kPriority; and a prompt without room keeps no other from starting.
#include <catch2/catch.hpp>

#include "tests/unit/engine/sched/scheduler_scene.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int32_t kBudget = 128;     // tokens of a step
constexpr std::int64_t kOldestPart = 32;  // a quarter of a step's tokens

SchedulerOptions with_policy(SchedulerPolicy policy) {
  SchedulerOptions options{.max_num_seqs = 8, .max_num_batched_tokens = kBudget};
  options.policy = policy;
  return options;
}

}  // namespace

TEST_CASE("of a step's tokens the oldest prompt has a quarter, the others go by their remainders", "[scheduler]") {
  Scene scene(with_policy(SchedulerPolicy::kFcfs), 1000);
  scene.add(800);
  CHECK(scene.step() == Plan{{0, kBudget}});
  scene.add(300);
  scene.add(90);
  scene.add(40);
  // The shortest is computed in full, the next one gets the rest.
  CHECK(scene.step() == Plan{{0, kOldestPart}, {2, kBudget - kOldestPart - 40}, {3, 40}});
  // A single token streams; a quarter of 127 is 31, rounded down.
  const Plan third = scene.step();
  REQUIRE(third.size() == 4);
  CHECK(third[0] == Planned{3, 1});
  CHECK(third[1] == Planned{0, 31});
  CHECK(third[2] == Planned{1, 127 - 31 - 34});
  CHECK(third[3] == Planned{2, 34});
}

TEST_CASE("the oldest prompt ends after a number of steps that its length alone decides", "[scheduler]") {
  Scene scene(with_policy(SchedulerPolicy::kFcfs), 100'000);
  const Sequence& oldest = scene.add(1600);
  int num_steps = 0;
  for (; oldest.num_generated() == 0 && num_steps < 1000; ++num_steps) {
    for (int i = 0; i < 7; ++i)
      scene.add_short(60, 1);  // more than a step computes, and each is shorter
    scene.step();
  }
  CHECK(num_steps <= 1600 / kOldestPart + 1);
}

TEST_CASE("under fair a long prompt of the key that was served less goes before a short one of the other",
          "[scheduler]") {
  Scene scene(with_policy(SchedulerPolicy::kFair), 1000);
  scene.add(4, "other");
  scene.step();
  Sequence& oldest = scene.add(500, "served");
  scene.step();
  Sequence& of_served = scene.add(60, "served");
  Sequence& of_other = scene.add(400, "other");
  const std::int64_t num_prompt_tokens = kBudget - 1;  // beside the stream
  CHECK(oldest.num_computed == num_prompt_tokens);
  scene.step();
  CHECK(oldest.num_computed == num_prompt_tokens + num_prompt_tokens / 4);
  CHECK(of_other.num_computed == num_prompt_tokens - num_prompt_tokens / 4);
  CHECK(of_served.num_computed == 0);
}

TEST_CASE("under priority a long prompt of a better class goes before a short one of a worse; what waited outweighs it",
          "[scheduler]") {
  Scene scene(with_policy(SchedulerPolicy::kPriority), 1000);
  Sequence& oldest = scene.add(500, "", 5);
  CHECK(scene.step() == Plan{{oldest.id.value, kBudget}});
  const bool has_waited = GENERATE(false, true);
  if (has_waited) scene.pass(130);  // seconds: four levels of 30 are less
  Sequence& worse = scene.add(60, "", 3);
  Sequence& better = scene.add(400, "", 1);
  scene.step();
  const std::int64_t of_oldest = has_waited ? kOldestPart : 0;
  CHECK(oldest.num_computed == kBudget + of_oldest);
  CHECK(better.num_computed == kBudget - of_oldest);
  CHECK(worse.num_computed == 0);
}

TEST_CASE("a prompt found in the cache that has no room holds up neither the first of the queue nor those after it",
          "[scheduler]") {
  Scene scene({.max_num_seqs = 8, .max_num_batched_tokens = kBudget}, 30, true);
  const std::vector<TokenId> known = made_tokens(64, 7);
  scene.add(known, "", 0, 1);
  scene.step();  // it ends, and 16 blocks stay cached
  scene.add(40);
  scene.step();  // 11 blocks are taken: 19 are available, and 16 of those are the cached ones
  Sequence& first = scene.add(40);
  Sequence& bypassing = scene.add(joined(known, made_tokens(20, 8)));  // 21 blocks; fewer tokens are left to compute
  Sequence& last = scene.add(8);
  scene.step();
  CHECK(first.state == Sequence::State::kRunning);
  CHECK(bypassing.state == Sequence::State::kWaiting);
  CHECK(last.state == Sequence::State::kRunning);
}
