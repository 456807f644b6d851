// LikelyTokens: the ranges of a vocabulary that hold nearly all tokens of recent prompts and answers. A drafting model
// computes logits for these only: the head of a large vocabulary is much of a draft's cost. Engine thread only.
// Invariant: ranges ascend, do not touch, and begin at multiples of kOutputStep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "kernels/backend.h"

namespace quire {

class LikelyTokens {
 public:
  explicit LikelyTokens(std::int64_t vocab_size)
      : vocab_size_(vocab_size), counts_(vocab_size < kLeastVocabulary ? 0U : num_parts(vocab_size)) {
    ranges_.reserve(counts_.size() / 2 + 1);
  }

  void note(TokenId token) {
    const auto range = static_cast<std::size_t>(token.value / kRange);
    if (range >= counts_.size()) return;
    ++counts_[range];
    if (++num_counted_ < kMostCounted) return;
    num_counted_ = 0;
    for (std::int32_t& count : counts_)
      num_counted_ += count /= 2;
  }
  // Only the last tokens of a long text count.
  void note(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens.last(std::min<std::size_t>(tokens.size(), kMostAtOnce)))
      note(token);
  }

  // Ranges with at least half of an equal share of all counted tokens: rarer ones would cost every draft more than
  // their drafts are worth. Empty: the whole vocabulary. Valid until the next call.
  std::span<const OutputRange> ranges() {
    ranges_.clear();
    if (num_counted_ < kLeastCounted) return {};
    const auto count = static_cast<std::int64_t>(counts_.size());
    for (std::int64_t range = 0; range < count; ++range) {
      if (2 * count * counts_[static_cast<std::size_t>(range)] < num_counted_) continue;
      const std::int64_t begin = range * kRange;
      const std::int64_t end = std::min(begin + kRange, vocab_size_);
      if (!ranges_.empty() && ranges_.back().end == begin) {
        ranges_.back().end = end;
      } else {
        ranges_.push_back({begin, end});
      }
    }
    return ranges_;
  }

 private:
  static constexpr std::int64_t kLeastVocabulary = 16384;  // a smaller vocabulary is used whole
  static constexpr std::int64_t kRange = 256;              // tokens
  static constexpr std::int64_t kLeastCounted = 512;       // fewer are too few to decide by
  static constexpr std::int64_t kMostCounted = 4096;       // all counts are then halved, so that old texts fade
  static constexpr std::size_t kMostAtOnce = 2048;
  static std::size_t num_parts(std::int64_t vocab_size) {
    return static_cast<std::size_t>((vocab_size + kRange - 1) / kRange);
  }

  const std::int64_t vocab_size_;
  std::vector<std::int32_t> counts_;  // tokens of each range
  std::int64_t num_counted_ = 0;      // their sum
  std::vector<OutputRange> ranges_;
};

}  // namespace quire
