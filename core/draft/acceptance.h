// DraftAcceptance: how often a sequence's drafts are accepted, and when to draft again after failures. MeanAcceptance:
// the same over all sequences that a model drafts for. Engine thread only. Invariant: a sequence whose drafts are never
// accepted verifies five to thirty at first, then one after 16, 32, 64 and 128 tokens, and from then on one in 256.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire {

class DraftAcceptance {
 public:
  // prior: acceptance rate assumed before any draft was verified, with the weight of `certainty` drafts.
  explicit DraftAcceptance(double prior, std::int64_t certainty = 2)
      : prior_(prior), certainty_(certainty), rate_(prior) {}

  // Whether a sequence of `num_tokens` tokens is to be drafted now.
  bool is_due(std::int64_t num_tokens) const { return num_tokens >= due_at_; }
  // Probability that a draft is accepted if the drafts before it were.
  double rate() const { return is_probe_ ? prior_ : rate_; }
  // A probe after a pause drafts a single token.
  std::int64_t most(std::int64_t allowed) const { return is_probe_ ? std::min<std::int64_t>(allowed, 1) : allowed; }

  // The first `num_accepted` of `num_verified` drafts (at least one) were accepted at a length of
  // `num_tokens`.
  void note(std::int64_t num_verified, std::int64_t num_accepted, std::int64_t num_tokens) {
    for (std::int64_t i = 0; i < num_accepted; ++i)
      observe(1.0);
    if (num_accepted < num_verified) observe(0.0);
    if (num_accepted > 0) {
      if (is_probe_) rate_ = std::max(rate_, prior_);
      is_probe_ = false;
      pause_ = kShortestPause;
    } else if (is_probe_ || rate_ < kHopeless) {
      pause(num_tokens);
      pause_ = std::min(2 * pause_, kLongestPause);
    }
  }
  // Drafts were proposed, but verifying them was not worth the time.
  void note_unused(std::int64_t num_tokens) {
    if (rate() < kLikely) pause(num_tokens);
  }

 private:
  static constexpr double kHopeless = 0.12;
  static constexpr double kLikely = 0.6;
  static constexpr double kLeastWeight = 1.0 / 16.0;  // weight of the last draft
  static constexpr std::int64_t kShortestPause = 16;  // tokens
  static constexpr std::int64_t kLongestPause = 256;

  void observe(double accepted) {
    ++num_observed_;
    rate_ += std::max(kLeastWeight, 1.0 / static_cast<double>(num_observed_ + certainty_)) * (accepted - rate_);
  }
  void pause(std::int64_t num_tokens) {
    due_at_ = num_tokens + pause_;
    is_probe_ = true;
  }

  double prior_;
  std::int64_t certainty_;
  double rate_;
  std::int64_t num_observed_ = 0;
  std::int64_t due_at_ = 0;
  std::int64_t pause_ = kShortestPause;
  bool is_probe_ = false;
};

class MeanAcceptance {
 public:
  // The first `num_accepted` of `num_verified` drafts were accepted.
  void note(std::int64_t num_verified, std::int64_t num_accepted) {
    if (num_verified > 0)
      rate_ += kWeight * (static_cast<double>(num_accepted) / static_cast<double>(num_verified) - rate_);
  }
  bool is_high() const { return rate_ >= kHigh; }

 private:
  static constexpr double kWeight = 1.0 / 8.0;
  static constexpr double kHigh = 0.5;

  double rate_ = 0.0;
};

}  // namespace quire
