// A normalised Hadamard rotation of a head's features, its own inverse: it spreads outliers over all features, which
// four-bit codes need, and preserves products of two rotated vectors. Pure functions; any thread. Invariant: the order
// of operations depends on the size alone, so that bits are the same on every level.
#pragma once

#include <cstdint>

namespace quire {

// Over blocks of the largest powers of two that make up `dim`, a multiple of 8: 80 is 64 and 16. out may be x.
void rotate_head(const float* x, std::int64_t dim, float* out);

}  // namespace quire
