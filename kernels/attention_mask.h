// AttentionMask: the tokens that a query sees, and heads' weights by distance; every backend uses it. Any thread.
#pragma once

#include <cstdint>

#include "kernels/graph_ops.h"

namespace quire {

struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Tokens that the query at `position` sees in a context of that length.
TokenRange seen_by(const AttentionOptions& options, std::int64_t position, std::int64_t context);
// The tokens that a step's row sees; it may see later ones.
TokenRange seen_by_row(const AttentionOptions& options, const AttentionBatch& batch, std::int64_t row,
                       std::int64_t position, std::int64_t context);

// Slopes of heads fall by equal factors (arXiv 2108.12409).
float alibi_slope(float largest_exponent, std::int64_t head, std::int64_t num_heads);

}  // namespace quire
