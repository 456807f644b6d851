// Parts of matrices and of lists of rows. Any thread.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/backend.h"

namespace quire {

inline MatrixView columns(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin, .rows = view.rows, .cols = count, .stride = view.stride};
}

inline MatrixView row_range(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin * view.stride, .rows = count, .cols = view.cols, .stride = view.stride};
}

// Number of rows before `row` in an ascending list.
inline std::int64_t num_before(std::span<const std::int32_t> rows, std::int64_t row) {
  return std::ranges::lower_bound(rows, row) - rows.begin();
}

}  // namespace quire
