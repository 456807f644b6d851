// Prices of steps on synthetic machines: learned from any mix of steps within a number of steps.
#include "core/sched/step_cost.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace quire;

namespace {

// Seconds of a step; the five prices of a small model on two cores.
struct Machine {
  double speed = 1.0;
  double seconds(const StepTerms& terms) const {
    return (0.04 + 0.002 * terms.num_streams + 0.0015 * terms.num_prompt_tokens + 0.0005 * terms.stream_ktokens +
            0.0002 * terms.prompt_ktokens) /
           speed;
  }
};

// A mix of steps: streams that come and go beside a prompt of 12,000 tokens, cut to fit 250 ms.
class Traffic {
 public:
  StepTerms next(const StepCost& cost) {
    StepTerms terms;
    const int num_streams = with_streams ? 1 + number_ % 7 : 0;
    for (int i = 0; i < num_streams; ++i)
      terms.add_stream(500 + 10 * i + number_);
    if (with_prompts && number_ % 3 != 2) {
      const std::int64_t num_tokens =
          std::clamp<std::int64_t>(cost.prompt_tokens_within(0.25, num_computed_), 16, 2048);
      terms.add_prompt(num_computed_, num_tokens);
      num_computed_ = (num_computed_ + num_tokens) % 12'000;
    }
    if (num_streams == 0 && terms.num_prompt_tokens == 0.0) terms.add_prompt(0, 16);
    ++number_;
    return terms;
  }
  bool with_streams = true;
  bool with_prompts = true;

 private:
  int number_ = 0;
  std::int64_t num_computed_ = 0;
};

double relative_error(const StepCost& cost, const Machine& machine, const StepTerms& terms) {
  return std::abs(cost.seconds(terms) / machine.seconds(terms) - 1.0);
}

// The largest error of a prediction in steps [from, to).
double worst_error(StepCost& cost, const Machine& machine, Traffic& traffic, int from, int to) {
  double worst = 0.0;
  for (int step = 0; step < to; ++step) {
    const StepTerms terms = traffic.next(cost);
    if (step >= from) worst = std::max(worst, relative_error(cost, machine, terms));
    cost.observe(terms, machine.seconds(terms));
  }
  return worst;
}

StepTerms prompt_of(std::int64_t num_computed, std::int64_t num_tokens) {
  StepTerms terms;
  terms.add_prompt(num_computed, num_tokens);
  return terms;
}

}  // namespace

TEST_CASE("the price of a step is known after ten mixed steps", "[step_cost]") {
  StepCost cost;
  Traffic traffic;
  CHECK(worst_error(cost, {}, traffic, 10, 200) < 0.03);
  CHECK(cost.fixed_seconds() == Approx(0.04).epsilon(0.02));
  CHECK(cost.prompt_token_seconds() == Approx(0.0015).epsilon(0.02));
}

TEST_CASE("the first step that only streams is priced as measured, whatever came before it", "[step_cost]") {
  const Machine machine;
  const std::int64_t num_tokens = GENERATE(16, 500, 2000);
  CAPTURE(num_tokens);
  StepCost cost;
  cost.observe(prompt_of(0, num_tokens), machine.seconds(prompt_of(0, num_tokens)));
  StepTerms stream;
  stream.add_stream(num_tokens);
  cost.observe(stream, machine.seconds(stream));
  CHECK(relative_error(cost, machine, stream) < 0.1);
  CHECK(relative_error(cost, machine, prompt_of(0, num_tokens)) < 0.1);
  StepTerms drafted;  // some drafts, verified
  drafted.add_stream(num_tokens, 5);
  for (int step = 0; step < 3; ++step)
    cost.observe(step % 2 == 0 ? drafted : stream, machine.seconds(step % 2 == 0 ? drafted : stream));
  CHECK(relative_error(cost, machine, drafted) < 0.1);
  CHECK(relative_error(cost, machine, stream) < 0.1);
}

TEST_CASE("the fixed price is learned without a step that only streams", "[step_cost]") {
  StepCost cost;
  Traffic traffic;
  traffic.with_streams = false;
  CHECK(worst_error(cost, {}, traffic, 20, 200) < 0.05);
  CHECK(cost.fixed_seconds() == Approx(0.04).epsilon(0.1));
}

TEST_CASE("a machine that becomes slower or faster is followed within fifteen steps", "[step_cost]") {
  StepCost cost;
  Traffic traffic;
  worst_error(cost, {}, traffic, 0, 200);
  Machine machine{.speed = GENERATE(0.5, 2.0, 0.25)};
  CHECK(worst_error(cost, machine, traffic, 15, 100) < 0.1);
}

TEST_CASE("a change of speed that only streams show holds for prompts too", "[step_cost]") {
  StepCost cost;
  Traffic traffic;
  worst_error(cost, {}, traffic, 0, 200);
  traffic.with_prompts = false;
  const Machine slower{.speed = 0.5};
  worst_error(cost, slower, traffic, 0, 20);
  CHECK(relative_error(cost, slower, prompt_of(2000, 100)) < 0.15);
  worst_error(cost, slower, traffic, 0, 2000);  // and is remembered while no prompt comes
  CHECK(relative_error(cost, slower, prompt_of(2000, 100)) < 0.2);
}

TEST_CASE("runs of steps that only stream do not make prompts look cheap", "[step_cost]") {
  // A small model on a CPU: a step costs hardly anything by itself, so that its price is often at zero.
  const StepPrice machine{.fixed = 0.002, .stream = 0.001, .prompt_token = 0.0007, .prompt_ktoken = 0.00003};
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  std::normal_distribution<double> noise(0.0, 0.05);
  StepCost cost;
  double worst = 0.0;  // longest time over prediction, steps with prompts
  for (int step = 0; step < 2000; ++step) {
    StepTerms terms;
    for (int i = 0; i < 32; ++i)
      terms.add_stream(300 + (step * 7 + i * 13) % 200);
    const bool has_prompt = step % 40 < 20 || step % 8 == 0;
    if (has_prompt) terms.add_prompt(0, step % 40 < 20 ? 150 + step % 20 : 40 + step % 300);
    const double seconds = machine.seconds(terms) * (1.0 + noise(random)) * (step % 150 == 149 ? 2.0 : 1.0);
    if (step > 50 && has_prompt && step % 150 != 149) worst = std::max(worst, seconds / cost.seconds(terms));
    cost.observe(terms, seconds);
  }
  CHECK(worst < 1.5);
}

TEST_CASE("noise of a tenth moves the price by less than that", "[step_cost]") {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0.0, 0.1);
  StepCost cost;
  Traffic traffic;
  const Machine machine;
  double sum = 0.0;
  double sum_squares = 0.0;
  constexpr int kSteps = 1000;
  for (int step = 0; step < kSteps; ++step) {
    const StepTerms terms = traffic.next(cost);
    const double error = step < 20 ? 0.0 : cost.seconds(terms) / machine.seconds(terms) - 1.0;
    sum += error;
    sum_squares += error * error;
    cost.observe(terms, machine.seconds(terms) * std::max(0.3, 1.0 + noise(random)));
  }
  CHECK(std::abs(sum / kSteps) < 0.03);
  CHECK(std::sqrt(sum_squares / kSteps) < 0.08);
}

TEST_CASE("one step that took ten times as long is forgotten after five", "[step_cost]") {
  StepCost cost;
  Traffic traffic;
  const Machine machine;
  worst_error(cost, machine, traffic, 0, 100);
  const StepTerms terms = traffic.next(cost);
  cost.observe(terms, 10.0 * machine.seconds(terms));
  CHECK(worst_error(cost, machine, traffic, 5, 50) < 0.1);
}

TEST_CASE("prompt tokens that fit a time shrink as the context grows, and grow from few to many by steps",
          "[step_cost]") {
  StepCost cost;
  CHECK(cost.prompt_tokens_within(0.25, 0) == 16);  // no price is known yet
  cost.observe(prompt_of(0, 16), Machine{}.seconds(prompt_of(0, 16)));
  CHECK(cost.prompt_tokens_within(100.0, 0) == 64);
  Traffic traffic;
  worst_error(cost, {}, traffic, 0, 100);
  const std::int64_t early = cost.prompt_tokens_within(0.2, 0);
  const std::int64_t late = cost.prompt_tokens_within(0.2, 12'000);
  CHECK(cost.prompt_seconds(0, early) == Approx(0.2).epsilon(0.01));
  CHECK(cost.prompt_seconds(12'000, late) == Approx(0.2).epsilon(0.02));
  CHECK(late < early / 2);
}

TEST_CASE("a step that took no time, or no number of seconds, teaches nothing", "[step_cost]") {
  StepCost cost;
  cost.observe(prompt_of(0, 16), 0.0);
  cost.observe(prompt_of(0, 16), std::nan(""));
  CHECK_FALSE(cost.known());
}
