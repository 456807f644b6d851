// Pooling: reduces a text's hidden states to an embedding or scores, instead of generating tokens. Any thread.
#pragma once

#include <cstdint>

namespace quire {

enum class Pooling {
  kNone,  // no pooling: tokens are generated
  kMean,  // the average over all positions
  kLast,  // the last position's
  kCls,   // the first position's
  kEach,  // every position's, one after another
};

// Form in which the pooled hidden states are returned.
enum class PooledOutput : std::uint8_t {
  kUnitVector,     // scaled to length 1
  kVector,         // the vector that the model computed
  kLabels,         // the scores of the model's classifier, before any softmax
  kTokenLogprobs,  // the log probabilities of Request::scored_tokens
};

}  // namespace quire
