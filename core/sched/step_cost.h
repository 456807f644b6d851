// StepPrice: the predicted time of a step: a fixed price, and one for each streaming row, prompt token and token of
// context. StepCost: a StepPrice that is learned from every step that was computed. Engine thread only. No clock of its
// own: times are arguments. A Kalman filter over the five prices. They drift together, as the machine becomes slower or
// faster, and each a little by itself. Invariant: no price is below zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

inline constexpr std::size_t kNumStepTerms = 5;
using StepVector = std::array<double, kNumStepTerms>;  // fixed, stream, prompt token, stream and prompt context

// The amounts of work in a step. Each has a price; the sum is the step's time.
struct StepTerms {
  double num_streams = 0.0;
  double num_prompt_tokens = 0.0;
  double stream_ktokens = 0.0;  // thousands of tokens of context that the streams attend to, all together
  double prompt_ktokens = 0.0;  // thousands of tokens before each prompt token, summed

  void add_stream(std::int64_t num_computed, std::int64_t num_tokens = 1);
  void add_prompt(std::int64_t num_computed, std::int64_t num_tokens);
  StepVector vector() const;
};

// Seconds for each of the terms.
struct StepPrice {
  double fixed = 0.0;  // once per step
  double stream = 0.0;
  double prompt_token = 0.0;
  double stream_ktoken = 0.0;
  double prompt_ktoken = 0.0;

  double seconds(const StepTerms& terms) const;
  StepVector vector() const;
  static StepPrice of(const StepVector& prices);
};

class StepCost {
 public:
  // Learns that a step took `seconds`; a step without a measured time is ignored.
  void observe(const StepTerms& terms, double seconds);

  bool known() const { return is_known_; }
  StepPrice price() const { return StepPrice::of(prices_); }
  double seconds(const StepTerms& terms) const { return price().seconds(terms); }
  double fixed_seconds() const { return prices_[0]; }
  // The shortest useful bound of a step: a bound that the fixed price nearly fills leaves each step one stream, so that
  // every stream gets a token in as many steps as there are streams.
  double least_step_seconds() const { return kLeastStepOfFixed * fixed_seconds(); }
  double prompt_token_seconds() const { return prices_[2]; }
  // Seconds for `num_tokens` of a prompt after its first `num_computed`, in addition to the rest of the step.
  double prompt_seconds(std::int64_t num_computed, std::int64_t num_tokens) const;
  // The number of a prompt's tokens after `num_computed` that fit `seconds`, at most four times as many as any step has
  // computed: prices are not trusted far from their measurements.
  std::int64_t prompt_tokens_within(double seconds, std::int64_t num_computed) const;

 private:
  static constexpr double kLeastStepOfFixed = 3.0;

  void begin(double seconds);
  double uncertainty(const StepVector& terms) const;
  void drift(const StepVector& terms, double seconds, double speed);
  void keep_positive();

  StepVector prices_{};
  std::array<StepVector, kNumStepTerms> covariance_{};
  double most_prompt_tokens_ = 0.0;  // computed in one step
  bool is_known_ = false;
};

}  // namespace quire
