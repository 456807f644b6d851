// Places of a step, entry by entry: which sequences give one up, which start, and in which order. Prompts and drafts
// have files of their own.
#include <catch2/catch.hpp>

#include "tests/unit/engine/sched/scheduler_scene.h"

using namespace quire;
using namespace quire::test;

namespace {

SchedulerOptions with_places(std::int32_t max_num_seqs, SchedulerPolicy policy = SchedulerPolicy::kFcfs) {
  SchedulerOptions options{.max_num_seqs = max_num_seqs, .max_num_batched_tokens = 64};
  options.policy = policy;
  return options;
}

std::shared_ptr<const Request> background_request(int seed, int seconds) {
  Request request = request_of(made_tokens(4, seed), 1000);
  request.is_background = true;
  request.arrival = Clock::time_point(std::chrono::seconds(seconds));
  return std::make_shared<const Request>(std::move(request));
}

}  // namespace

TEST_CASE("displacement: the least important choice gives its place to a request without one", "[scheduler]") {
  Scene scene(with_places(4), 100);
  scene.add(4);
  CHECK(scene.step() == Plan{{0, 4}});
  Sequence& parent = scene.add(4);
  CHECK(scene.step() == Plan{{0, 1}, {1, 4}});
  scene.fork(parent);
  const Sequence& last = scene.fork(parent);
  scene.add(4);
  CHECK(scene.step() == Plan{{0, 1}, {1, 1}, {2, 1}, {4, 4}});
  CHECK(scene.plan.preempted == std::vector<Sequence*>{&scene.sequences[3]});
  CHECK(last.state == Sequence::State::kWaiting);
}

TEST_CASE("displacement: one of many keeps the place that it has come back to for eight steps", "[scheduler]") {
  Scene scene(with_places(2), 100);
  Sequence& parent = scene.add(4);
  scene.step();
  const Sequence& choice = scene.fork(parent);
  const Sequence& brief = scene.add_short(4, 1);
  scene.step();
  CHECK(brief.state == Sequence::State::kDone);
  CHECK(scene.step().back().id == choice.id.value);  // it is back
  const Sequence& next = scene.add_short(4, 1);
  int num_steps = 0;
  for (; scene.plan.started.empty() && num_steps < 100; ++num_steps)
    scene.step();
  CHECK(next.state == Sequence::State::kDone);
  CHECK(num_steps == 8);
}

TEST_CASE("displacement: the background gives its place to any other request", "[scheduler]") {
  Scene scene(with_places(2), 100);
  scene.add(background_request(1, 0));
  scene.add(4);
  CHECK(scene.step() == Plan{{1, 4}, {0, 4}});
  scene.add(4);
  CHECK(scene.step() == Plan{{1, 1}, {2, 4}});
  CHECK(scene.sequences[0].state == Sequence::State::kWaiting);
}

TEST_CASE("displacement: under priority the worst class gives its place up, and waits", "[scheduler]") {
  Scene scene(with_places(2, SchedulerPolicy::kPriority), 100);
  scene.add(4, "", 1);
  scene.add(4, "", 2);
  CHECK(scene.step() == Plan{{0, 4}, {1, 4}});
  scene.add(4, "", 0);
  CHECK(scene.step() == Plan{{0, 1}, {2, 4}});
  CHECK(scene.plan.preempted == std::vector<Sequence*>{&scene.sequences[1]});
}

TEST_CASE("lists: they leave a quarter of the places to others", "[scheduler]") {
  Scene scene(with_places(4), 100);
  for (int i = 0; i < 4; ++i)
    scene.add_of_list(4);
  CHECK(scene.step() == Plan{{0, 4}, {1, 4}, {2, 4}});
  scene.add(4);
  CHECK(scene.step() == Plan{{0, 1}, {1, 1}, {2, 1}, {4, 4}});
}

TEST_CASE("admission: in the order of arrival, a shorter one first while prompts leave it something", "[scheduler]") {
  Scene scene(with_places(4), 100);
  scene.add(60);
  scene.add(8);
  scene.add(30);
  // The shortest in full, then the next; the oldest has a quarter of its own.
  CHECK(scene.step() == Plan{{0, 26}, {1, 8}, {2, 30}});
}
