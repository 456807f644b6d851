// Turns measured steps into a price for any step. Any thread; pure.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/sched/step_cost.h"

namespace quire::sim {

struct MeasuredStep {
  StepTerms terms;
  double seconds = 0.0;
};

// Measured seconds of steps divided by their price, in order of measurement, so that slow times stay together. Empty:
// no steps of that kind were measured.
struct StepScatter {
  std::vector<double> streams;  // decode steps only
  std::vector<double> prompts;  // steps with tokens of a prompt
};

struct FittedPrice {
  StepPrice price;
  double mean_error = 0.0;  // relative error of a measured step: 0.05 is 5%
};

// Least squares of the relative errors with non-negative prices: a term whose price would be negative is left out.
// Errors: nothing was measured, or a time is not positive.
Result<FittedPrice> fit_price(const std::vector<MeasuredStep>& steps);

// "base=8,stream=0.3,prompt=1,context=0.05,prompt_context=0.1", milliseconds: parse_price() reads it.
std::string to_string(const StepPrice& price);

StepScatter scatter_of(const std::vector<MeasuredStep>& steps, const StepPrice& price);

}  // namespace quire::sim
