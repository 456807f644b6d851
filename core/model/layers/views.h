// Parts of matrices. Any thread.
#pragma once

#include "kernels/backend.h"

namespace quire {

inline MatrixView columns(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin, .rows = view.rows, .cols = count, .stride = view.stride};
}

inline MatrixView row_range(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin * view.stride, .rows = count, .cols = view.cols, .stride = view.stride};
}

}  // namespace quire
