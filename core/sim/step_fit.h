// Turns measured steps into a price for any step. Any thread; pure.
#pragma once

#include <vector>

#include "core/base/result.h"
#include "core/sched/step_cost.h"

namespace quire::sim {

struct MeasuredStep {
  StepTerms terms;
  double seconds = 0.0;
};

// What steps took over what their price says, in the order in which they were measured, so that slow times stay
// together. Empty: nothing is known of that kind.
struct StepScatter {
  std::vector<double> streams;  // of steps of streams alone
  std::vector<double> prompts;  // of steps with a part of a prompt
};

struct FittedPrice {
  StepPrice price;
  double mean_error = 0.0;  // of a measured step, relative: 0.05 is 5%
};

// Least squares of the relative errors with no price below zero: one that would be is left out. Errors: nothing was
// measured, or a time that is not positive.
Result<FittedPrice> fit_price(const std::vector<MeasuredStep>& steps);

StepScatter scatter_of(const std::vector<MeasuredStep>& steps, const StepPrice& price);

}  // namespace quire::sim
