// Pooling: how a text's hidden states become one vector. Any thread.
#pragma once

namespace quire {

enum class Pooling {
  kNone,  // no vector is wanted
  kMean,  // of all positions
  kLast,  // the last position's
  kCls,   // the first position's
};

}  // namespace quire
