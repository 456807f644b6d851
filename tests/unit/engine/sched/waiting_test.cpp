// Sequences that cannot start, of each kind, hold up no request that can: in steps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/engine/sched/scheduled_machine.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr int kSmallTokens = 20;
constexpr int kForEver = 20'000;  // tokens: no such sequence ends during a test
constexpr int kBlockTokens = 16;
constexpr int kFewBlocks = 1500;
constexpr int kBallastBlocks = 400;
constexpr SchedulerPolicy kWaitingPolicies[] = {SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority,
                                                SchedulerPolicy::kFair};

SchedulerOptions waiting_options(SchedulerPolicy policy, std::int32_t max_num_seqs) {
  SchedulerOptions options;
  options.policy = policy;
  options.max_num_seqs = max_num_seqs;
  return options;
}

// A machine whose places are partly taken, and in which sequences of chosen kinds wait.
class CrowdedMachine : public ScheduledMachine {
 public:
  using ScheduledMachine::ScheduledMachine;

  Request made(int num_tokens, int max_tokens, const std::string& key = "", int priority = 1) {
    Request request = request_of(made_tokens(num_tokens, ++num_made_, 50'000), max_tokens);
    request.key_name = key;
    request.priority = priority;
    return request;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i)
      step();
  }
  // Adds streams that hold their places, then a request with as many choices as places.
  void add_streams(int count) {
    for (int i = 0; i < count; ++i)
      add(made(kSmallTokens, kForEver));
    steps(5);
  }
  void add_choices(int count, int num_tokens) {
    Request choices = made(num_tokens, kForEver);
    choices.num_choices = count;
    add(std::move(choices));
    steps(5);
  }
  int steps_of_small(int num_tokens = kSmallTokens) { return steps_to_start(add(made(num_tokens, 3))); }
  // A stream that holds kBallastBlocks, and a request for which there is no room beside it, whatever else ends.
  void add_ballast() {
    const Sequence& ballast = add(made(kBallastBlocks * kBlockTokens, kForEver));
    steps_to_start(ballast);
  }
  // It is first in the order of arrival.
  void add_blocked() {
    Request request = made((kFewBlocks - kBallastBlocks / 2) * kBlockTokens, 10, "blocked");
    request.arrival = Clock::time_point(std::chrono::microseconds(++num_blocked_));
    add(std::move(request));
  }
  // It has room now, and could come to need more than is left beside the blocked one.
  Sequence& add_greedy(int num_tokens) { return add(made(num_tokens, kForEver, "blocked")); }

 private:
  int num_made_ = 0;
  int num_blocked_ = 0;
};

// Random sequences that crowd a machine, and their relation to a small request.
class RandomCrowd {
 public:
  explicit RandomCrowd(unsigned seed)
      : random_(seed),
        places_(std::array{8, 16, 64}[seed % 3]),
        is_short_of_room_(seed / 9 % 2 == 1),
        machine_(waiting_options(kWaitingPolicies[seed / 3 % 3], places_), is_short_of_room_ ? kFewBlocks : 100'000) {}

  void gather() {
    if (is_short_of_room_) machine_.add_ballast();
    // A quarter of the places is left to requests without one.
    const int num_first = places_ * 3 / 4;
    const int num_with_choices = std::min(few_or_many(4), num_first / 2);
    for (int i = below(num_first - num_with_choices + 1); i > 0; --i)
      machine_.add(request(kForEver));
    for (int i = 0; i < num_with_choices; ++i) {
      Request choices = request(kForEver);
      choices.num_choices = 2 + below(places_ - 1);
      machine_.add(std::move(choices));
    }
    machine_.steps(60);  // the prompts are computed, and the choices forked
    if (is_short_of_room_) {
      for (int i = 1 + below(3); i > 0; --i)
        machine_.add_blocked();
      for (int i = few_or_many(100); i > 0; --i)
        machine_.add_greedy(any_length());
    }
    for (int i = few_or_many(60); i > 0; --i)
      machine_.add(request(kForEver), true);
    for (int i = few_or_many(60); i > 0; --i) {
      Request background = request(kForEver);
      background.is_background = true;
      machine_.add(std::move(background));
    }
    for (int i = few_or_many(100); i > 0; --i)
      machine_.begin_restore(machine_.add(request(10), below(4) == 0));
    for (int i = few_or_many(6); i > 0; --i) {
      Request bounded = request(2);
      bounded.sampling.num_prompt_logprobs = 0;
      machine_.add(std::move(bounded));
    }
    machine_.steps(below(10));
  }

  // The longest wait of small requests that arrive one after another or together.
  int longest_wait() {
    int longest = 0;
    for (int i = 0; i < 8; ++i) {
      std::vector<const Sequence*> small;
      for (int j = 1 + below(2); j > 0; --j)
        small.push_back(&machine_.add(machine_.made(any_length(), 1 + below(4), below(2) == 0 ? "small" : "a")));
      const int before = machine_.num_steps;
      for (const Sequence* each : small)
        machine_.steps_to_start(*each);
      longest = std::max(longest, machine_.num_steps - before);
    }
    return longest;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  int few_or_many(int most) { return std::array{0, 1 + below(3), most}[static_cast<std::size_t>(below(3))]; }
  int any_length() { return std::array{kSmallTokens / 2, kSmallTokens, 3 * kSmallTokens}[below(3)]; }
  // Makes a request of any key, whose class is that of a small request or a worse one.
  Request request(int max_tokens) {
    return machine_.made(any_length(), max_tokens, std::string(1, static_cast<char>('a' + below(4))), 1 + below(2));
  }

  std::mt19937 random_;
  int places_;
  bool is_short_of_room_;
  CrowdedMachine machine_;
};

}  // namespace

TEST_CASE("beside streams and a request with as many choices as places a small request starts at once", "[waiting]") {
  const int num_tokens = GENERATE(kSmallTokens / 2, kSmallTokens, 4 * kSmallTokens);
  CrowdedMachine machine(
      waiting_options(GENERATE(from_range(std::begin(kWaitingPolicies), std::end(kWaitingPolicies))), 16));
  machine.add_streams(8);
  machine.add_choices(16, num_tokens);
  for (int i = 0; i < 6; ++i)
    CHECK(machine.steps_of_small() <= 2);
}

TEST_CASE("of the places that a request's choices have, another request gets one, and they go on", "[waiting]") {
  CrowdedMachine machine(waiting_options(SchedulerPolicy::kFcfs, 4));
  machine.add_streams(2);
  Request choices = machine.made(kSmallTokens, 40);
  choices.num_choices = 4;
  machine.add(std::move(choices));
  const auto have_ended = [&] {
    return std::ranges::count(machine.sequences(), Sequence::State::kDone, &Sequence::state) >= 4;
  };
  int num_steps = 0;
  for (; num_steps < 2000 && !have_ended(); ++num_steps) {
    // Endless small requests pass a choice over eight times.
    if (num_steps % 4 == 0) machine.add(machine.made(kSmallTokens, kForEver / 1000));
    machine.step();
  }
  CHECK(num_steps < 2000);
}

TEST_CASE("a list's prompts give a place to a request that has none, and end", "[waiting]") {
  CrowdedMachine machine(
      waiting_options(GENERATE(from_range(std::begin(kWaitingPolicies), std::end(kWaitingPolicies))), 16));
  machine.add_streams(4);
  std::vector<const Sequence*> list;
  for (int i = 0; i < 40; ++i)
    list.push_back(&machine.add(machine.made(kSmallTokens, 100), true));
  machine.steps(20);
  for (int i = 0; i < 6; ++i)
    CHECK(machine.steps_of_small() <= 2);
  machine.steps(2000);
  CHECK(std::ranges::all_of(list, [](const Sequence* each) { return each->state == Sequence::State::kDone; }));
}

TEST_CASE("sequences whose blocks are being restored take no place among the candidates", "[waiting]") {
  const int num_restoring = GENERATE(1, 16, 500);
  CrowdedMachine machine(
      waiting_options(GENERATE(from_range(std::begin(kWaitingPolicies), std::end(kWaitingPolicies))), 8));
  machine.add_streams(4);
  std::vector<Sequence*> restoring;
  for (int i = 0; i < num_restoring; ++i) {
    restoring.push_back(&machine.add(machine.made(kSmallTokens, 2)));
    machine.begin_restore(*restoring.back());
  }
  for (int i = 0; i < 6; ++i)
    CHECK(machine.steps_of_small() == 1);
  for (Sequence* each : restoring) {
    REQUIRE(each->state == Sequence::State::kWaiting);
    machine.end_restore(*each);
  }
  machine.step();
  CHECK(restoring[0]->num_generated() == 1);
  machine.steps(4 * num_restoring);
  CHECK(std::ranges::all_of(restoring, [](const Sequence* each) { return each->state == Sequence::State::kDone; }));
}

TEST_CASE("those that are being restored count among the next to start", "[waiting]") {
  CrowdedMachine machine(waiting_options(SchedulerPolicy::kFcfs, 4));
  machine.add_streams(2);
  const auto next = [&] {
    const auto found = machine.next_to_start();
    return std::vector<const Sequence*>(found.begin(), found.end());
  };
  Sequence& first = machine.add(machine.made(kSmallTokens, 2));
  machine.begin_restore(first);
  machine.step();  // moves it into its lane
  Sequence& second = machine.add(machine.made(kSmallTokens, 2));
  machine.begin_restore(second);
  machine.add(machine.made(kSmallTokens, 2));
  CHECK(next() == std::vector<const Sequence*>{&first, &second});
}

TEST_CASE("sequences without room beside a blocked one take no place among the candidates", "[waiting]") {
  const int num_greedy = GENERATE(1, 16, 500);
  const int num_tokens = GENERATE(kSmallTokens / 2, kSmallTokens, 4 * kSmallTokens);
  CrowdedMachine machine(
      waiting_options(GENERATE(from_range(std::begin(kWaitingPolicies), std::end(kWaitingPolicies))), 16), kFewBlocks);
  machine.add_ballast();
  machine.add_blocked();
  for (int i = 0; i < num_greedy; ++i)
    machine.add_greedy(kSmallTokens);
  machine.steps(num_greedy / 16 + 1);
  for (int i = 0; i < 6; ++i)
    CHECK(machine.steps_of_small(num_tokens) <= 2);
  CHECK(machine.plan.preempted.empty());
}

TEST_CASE("one of many sequences without room starts once there is room for it alone", "[waiting]") {
  constexpr int kGreedy = 200;
  CrowdedMachine machine(
      waiting_options(GENERATE(from_range(std::begin(kWaitingPolicies), std::end(kWaitingPolicies))), 16), kFewBlocks);
  machine.add_ballast();
  // The rest of the pool is held for a while.
  const Sequence& holder = machine.add(machine.made((kFewBlocks - kBallastBlocks - 20) * kBlockTokens, 60));
  machine.steps_to_start(holder);
  machine.add_blocked();
  const Sequence* hidden = nullptr;
  for (int i = 0; i < kGreedy; ++i) {
    machine.add_greedy(40 * kBlockTokens - 8);
    machine.add_greedy(40 * kBlockTokens + 8);
    if (i == kGreedy / 2) hidden = &machine.add(machine.made(40 * kBlockTokens, 3, "blocked"));
  }
  while (holder.state == Sequence::State::kRunning)
    machine.step();
  REQUIRE(hidden->state == Sequence::State::kWaiting);
  CHECK(machine.steps_to_start(*hidden) <= 2 * kGreedy / 8 + 15);
}

TEST_CASE("whatever waits, a small request starts within a bounded number of steps", "[waiting][property]") {
  // A choice keeps the place that it has come back to for eight steps, and two requests may come at once.
  constexpr int kMostSteps = 16;
  for (unsigned seed = 0; seed < 360; ++seed) {
    INFO("seed " << seed);
    RandomCrowd crowd(seed);
    crowd.gather();
    CHECK(crowd.longest_wait() <= kMostSteps);
  }
}
