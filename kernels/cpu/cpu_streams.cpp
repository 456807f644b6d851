// Operations over residual streams. Sums of a row are made in double precision, in the order of its elements.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/rows/graph_math.h"

namespace quire {

namespace {

double squared_length(const float* x, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

void CpuGraphOps::mix_streams(MatrixView factors, MatrixView x, MatrixView out) {
  const auto count = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(factors.cols))));
  const std::int64_t width = x.cols / count;
  for_rows(x.rows, count * x.cols, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < count; ++i) {
      float* to = row_of(out, row) + i * width;
      std::copy_n(row_of(x, row) + i * width, width, to);
      for (std::int64_t k = 0; k < count; ++k)
        kernels_.add_scaled(row_of(x, row) + k * width, row_of(factors, row)[i * count + k], width, to);
    }
  });
}

void CpuGraphOps::add_to_streams(MatrixView factors, MatrixView x, MatrixView streams) {
  for_rows(x.rows, streams.cols, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < factors.cols; ++i) {
      const float factor = 1.0f + row_of(factors, row)[i];
      kernels_.add_scaled(row_of(x, row), factor, x.cols, row_of(streams, row) + i * x.cols);
    }
  });
}

void CpuGraphOps::match_length(MatrixView like, MatrixView x) {
  for_rows(x.rows, 2 * x.cols, [&](std::int64_t row) {
    const double own = squared_length(row_of(x, row), x.cols);
    if (own == 0.0) return;
    const double factor = std::sqrt(squared_length(row_of(like, row), like.cols) / own);
    kernels_.scale(row_of(x, row), static_cast<float>(factor), x.cols, row_of(x, row));
  });
}

void CpuGraphOps::keep_excess(MatrixView x, float deviations, bool of_sample) {
  for_rows(x.rows, 3 * x.cols, [&](std::int64_t row) {
    float* values = row_of(x, row);
    double sum = 0.0;
    for (std::int64_t i = 0; i < x.cols; ++i)
      sum += static_cast<double>(values[i]);
    const double mean = sum / static_cast<double>(x.cols);
    double squares = 0.0;
    for (std::int64_t i = 0; i < x.cols; ++i)
      squares += (static_cast<double>(values[i]) - mean) * (static_cast<double>(values[i]) - mean);
    const std::int64_t degrees = std::max<std::int64_t>(1, of_sample ? x.cols - 1 : x.cols);
    const double cutoff = mean + static_cast<double>(deviations) * std::sqrt(squares / static_cast<double>(degrees));
    for (std::int64_t i = 0; i < x.cols; ++i)
      values[i] = static_cast<float>(std::max(0.0, static_cast<double>(values[i]) - cutoff));
  });
}

}  // namespace quire
