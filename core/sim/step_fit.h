// Turns measured steps into a price for any step. Any thread; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "core/sim/simulation.h"

namespace quire::sim {

// What was in one step, and how long it took.
struct MeasuredStep {
  double num_streams = 0.0;
  double num_prompt_tokens = 0.0;
  double stream_ktokens = 0.0;  // thousands of tokens of context that the streams attend to, all together
  double prompt_ktokens = 0.0;  // of the prompt's tokens: the sum of the thousands of tokens before each
  double ms = 0.0;
};

struct FittedPrice {
  StepPrice price;
  double mean_error = 0.0;  // of a measured step, relative: 0.05 is 5%
};

// Least squares of the relative errors with no price below zero: one that would be is left out. Errors: nothing was
// measured, or a time that is not positive.
Result<FittedPrice> fit_price(const std::vector<MeasuredStep>& steps);

}  // namespace quire::sim
