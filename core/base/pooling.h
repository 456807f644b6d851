// Pooling: how a text's hidden states become an embedding or scores instead of new tokens. Any thread.
#pragma once

#include <cstdint>

namespace quire {

enum class Pooling {
  kNone,  // nothing is wanted but new tokens
  kMean,  // of all positions
  kLast,  // the last position's
  kCls,   // the first position's
  kEach,  // every position's, one after another
};

// What is given of the pooled hidden states.
enum class PooledOutput : std::uint8_t {
  kUnitVector,     // of length 1
  kVector,         // as the model computed it
  kLabels,         // the scores of the model's classifier, before any softmax
  kTokenLogprobs,  // the log probabilities of Request::scored_tokens
};

}  // namespace quire
