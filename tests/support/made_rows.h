// made_rows: the rows that a product is given by a ProductInput, seen through the product itself: every level
// multiplies F32 weights without rounding its input, so that the identity returns each value. One thread at a time.
#pragma once

#include <vector>

#include "kernels/backend.h"

namespace quire::test {

// [x.rows * cols()]
inline std::vector<float> made_rows(Backend& backend, const ProductInput& input) {
  const std::int64_t cols = input.cols();
  std::vector<float> identity(static_cast<std::size_t>(cols * cols), 0.0F);
  for (std::int64_t i = 0; i < cols; ++i)
    identity[static_cast<std::size_t>(i * (cols + 1))] = 1.0F;
  const WeightSource source{DType::kF32, cols, cols, reinterpret_cast<const std::byte*>(identity.data())};
  std::vector<float> rows(static_cast<std::size_t>(input.x.rows * cols));
  backend.linear(*backend.load_linear({&source, 1}, {}), input, {rows.data(), input.x.rows, cols, cols}, false);
  return rows;
}

}  // namespace quire::test
