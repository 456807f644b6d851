// The arithmetic of products in int8, computed again from the files' blocks: kernels must give the same bits. Pure
// functions; any thread.
#pragma once

#include <vector>

#include "tests/kernels/random_data.h"

namespace quire::test {

// 32 activations of one row.
struct ChainBlock {
  int quants[32];
  float scale;
};
std::vector<ChainBlock> chain_blocks(const float* x, std::int64_t depth);

// out[row][col] of x W^T: sums over 1024 features each, added in order.
Matrix chain_product(const Weights& weights, const Matrix& x);

}  // namespace quire::test
