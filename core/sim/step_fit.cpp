#include "core/sim/step_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace quire::sim {

namespace {

// Solves by Gauss-Jordan elimination with pivots (five unknowns at most); unused terms are held at zero.
StepVector solve(std::array<StepVector, kNumStepTerms> matrix, StepVector right,
                 const std::array<bool, kNumStepTerms>& used) {
  for (std::size_t i = 0; i < kNumStepTerms; ++i) {
    if (used[i]) continue;
    for (std::size_t j = 0; j < kNumStepTerms; ++j)
      matrix[i][j] = matrix[j][i] = 0.0;
    matrix[i][i] = 1.0;
    right[i] = 0.0;
  }
  StepVector least{};  // a smaller pivot is rounding error
  for (std::size_t i = 0; i < kNumStepTerms; ++i)
    least[i] = 1e-12 * matrix[i][i];
  for (std::size_t column = 0; column < kNumStepTerms; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < kNumStepTerms; ++row) {
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    }
    if (std::abs(matrix[pivot][column]) <= least[column]) continue;  // not measured apart from other terms: stays zero
    std::swap(matrix[pivot], matrix[column]);
    std::swap(right[pivot], right[column]);
    for (std::size_t row = 0; row < kNumStepTerms; ++row) {
      if (row == column) continue;
      const double factor = matrix[row][column] / matrix[column][column];
      for (std::size_t j = column; j < kNumStepTerms; ++j)
        matrix[row][j] -= factor * matrix[column][j];
      right[row] -= factor * right[column];
    }
  }
  StepVector solution{};
  for (std::size_t i = 0; i < kNumStepTerms; ++i) {
    solution[i] = std::abs(matrix[i][i]) <= least[i] ? 0.0 : right[i] / matrix[i][i];
  }
  return solution;
}

}  // namespace

Result<FittedPrice> fit_price(const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) return invalid("step price: no steps were measured", "cost");
  std::array<StepVector, kNumStepTerms> matrix{};
  StepVector right{};
  for (const MeasuredStep& step : steps) {
    if (!(step.seconds > 0.0) || !std::isfinite(step.seconds)) {
      return invalid("step price: a measured step took no time at all", "cost");
    }
    const StepVector terms = step.terms.vector();
    const double weight = 1.0 / (step.seconds * step.seconds);  // errors count relative to the step's time
    for (std::size_t i = 0; i < kNumStepTerms; ++i) {
      for (std::size_t j = 0; j < kNumStepTerms; ++j)
        matrix[i][j] += weight * terms[i] * terms[j];
      right[i] += weight * terms[i] * step.seconds;
    }
  }
  std::array<bool, kNumStepTerms> used{true, true, true, true, true};
  StepVector solution = solve(matrix, right, used);
  for (auto lowest = std::ranges::min_element(solution); *lowest < 0.0; lowest = std::ranges::min_element(solution)) {
    used[static_cast<std::size_t>(lowest - solution.begin())] = false;
    solution = solve(matrix, right, used);
  }
  FittedPrice fitted{StepPrice::of(solution)};
  for (const MeasuredStep& step : steps) {
    fitted.mean_error +=
        std::abs(fitted.price.seconds(step.terms) - step.seconds) / step.seconds / static_cast<double>(steps.size());
  }
  return fitted;
}

StepScatter scatter_of(const std::vector<MeasuredStep>& steps, const StepPrice& price) {
  StepScatter scatter;
  for (const MeasuredStep& step : steps) {
    std::vector<double>& kind = step.terms.num_prompt_tokens > 0.0 ? scatter.prompts : scatter.streams;
    const double expected_s = price.seconds(step.terms);
    if (expected_s > 0.0) kind.push_back(step.seconds / expected_s);
  }
  return scatter;
}

std::string to_string(const StepPrice& price) {
  return fmt::format("base={:.4g},stream={:.4g},prompt={:.4g},context={:.4g},prompt_context={:.4g}",
                     1000.0 * price.fixed, 1000.0 * price.stream, 1000.0 * price.prompt_token,
                     1000.0 * price.stream_ktoken, 1000.0 * price.prompt_ktoken);
}

}  // namespace quire::sim
