#include "core/sim/step_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quire::sim {

namespace {

constexpr std::size_t kTerms = 5;
using Terms = std::array<double, kTerms>;

Terms terms_of(const MeasuredStep& step) {
  return {1.0, step.num_streams, step.num_prompt_tokens, step.stream_ktokens, step.prompt_ktokens};
}

// The unused terms are held at zero. Gauss-Jordan with pivots: five unknowns at most.
Terms solve(std::array<Terms, kTerms> matrix, Terms right, const std::array<bool, kTerms>& used) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (used[i]) continue;
    for (std::size_t j = 0; j < kTerms; ++j)
      matrix[i][j] = matrix[j][i] = 0.0;
    matrix[i][i] = 1.0;
    right[i] = 0.0;
  }
  for (std::size_t column = 0; column < kTerms; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < kTerms; ++row) {
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    }
    if (std::abs(matrix[pivot][column]) < 1e-12) continue;  // never measured apart: it stays zero
    std::swap(matrix[pivot], matrix[column]);
    std::swap(right[pivot], right[column]);
    for (std::size_t row = 0; row < kTerms; ++row) {
      if (row == column) continue;
      const double factor = matrix[row][column] / matrix[column][column];
      for (std::size_t j = column; j < kTerms; ++j)
        matrix[row][j] -= factor * matrix[column][j];
      right[row] -= factor * right[column];
    }
  }
  Terms solution{};
  for (std::size_t i = 0; i < kTerms; ++i) {
    solution[i] = std::abs(matrix[i][i]) < 1e-12 ? 0.0 : right[i] / matrix[i][i];
  }
  return solution;
}

double dot(const Terms& a, const Terms& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < kTerms; ++i)
    sum += a[i] * b[i];
  return sum;
}

}  // namespace

Result<FittedPrice> fit_price(const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) return invalid("step price: no steps were measured", "cost");
  std::array<Terms, kTerms> matrix{};
  Terms right{};
  for (const MeasuredStep& step : steps) {
    if (!(step.ms > 0.0) || !std::isfinite(step.ms)) {
      return invalid("step price: a measured step took no time at all", "cost");
    }
    const Terms terms = terms_of(step);
    const double weight = 1.0 / (step.ms * step.ms);  // so that errors count by their share of the step
    for (std::size_t i = 0; i < kTerms; ++i) {
      for (std::size_t j = 0; j < kTerms; ++j)
        matrix[i][j] += weight * terms[i] * terms[j];
      right[i] += weight * terms[i] * step.ms;
    }
  }
  std::array<bool, kTerms> used{true, true, true, true, true};
  Terms solution = solve(matrix, right, used);
  for (auto lowest = std::ranges::min_element(solution); *lowest < 0.0; lowest = std::ranges::min_element(solution)) {
    used[static_cast<std::size_t>(lowest - solution.begin())] = false;
    solution = solve(matrix, right, used);
  }
  FittedPrice fitted{{.base_ms = solution[0],
                      .stream_ms = solution[1],
                      .prompt_token_ms = solution[2],
                      .context_ktoken_ms = solution[3],
                      .prompt_context_ms = solution[4]}};
  for (const MeasuredStep& step : steps) {
    fitted.mean_error +=
        std::abs(dot(solution, terms_of(step)) - step.ms) / step.ms / static_cast<double>(steps.size());
  }
  return fitted;
}

}  // namespace quire::sim
