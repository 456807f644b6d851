// CatchUp: decides whether a drafting model may compute the rows that it lacks of a sequence before it can draft for
// it. Engine thread only. Times are arguments. The cost of drafting is debited; the time saved by accepted drafts is
// credited, and so is a small share of all steps. Invariant: if no draft is ever accepted, catching up takes at most
// that share of the time, besides the rows of the sequence begun before the balance fell below zero.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire {

class CatchUp {
 public:
  void note_step(double seconds) { credit(kShare * seconds); }
  // Drafts took `spent` seconds and saved `saved`.
  void note_drafts(double saved, double spent) { credit(saved - spent); }
  // The drafting model computed `num_rows` missing rows of a sequence.
  void note_rows(std::int64_t num_rows, double seconds) {
    if (seconds <= 0.0) return;
    credit(-seconds);
    const double each = seconds / static_cast<double>(num_rows);
    row_seconds_ = row_seconds_ == 0.0 ? each : row_seconds_ + kWeight * (each - row_seconds_);
  }

  // The first `num_accepted` of `num_verified` drafts were accepted.
  void note_verified(std::int64_t num_verified, std::int64_t num_accepted) {
    if (num_verified > 0)
      rate_ += kWeight * (static_cast<double>(num_accepted) / static_cast<double>(num_verified) - rate_);
  }

  // Whether the rows of another sequence may be begun. With many streams, drafts pay only if they are verified
  // together: so if most drafts are accepted, some sequences are begun in advance.
  bool may_begin() const { return balance_ >= (rate_ >= kMostlyRight ? -kMostAdvanced : 0.0); }
  double row_seconds() const { return row_seconds_; }  // 0: not yet known
  // Number of rows that take about `seconds`.
  std::int64_t rows_within(double seconds) const {
    if (row_seconds_ == 0.0 || seconds <= 0.0) return kMostRows;
    return std::clamp(static_cast<std::int64_t>(seconds / row_seconds_), kLeastRows, kMostRows);
  }

  static constexpr std::int64_t kLeastRows = 16;  // rows at once
  static constexpr std::int64_t kMostRows = 128;

 private:
  static constexpr double kShare = 0.01;
  static constexpr double kMostSaved = 10.0;  // seconds
  static constexpr double kWeight = 1.0 / 8.0;
  static constexpr double kMostlyRight = 0.5;
  static constexpr double kMostAdvanced = 2.0;  // seconds

  void credit(double seconds) { balance_ = std::min(balance_ + seconds, kMostSaved); }

  double balance_ = 0.0;
  double rate_ = 0.0;  // rate of accepted drafts
  double row_seconds_ = 0.0;
};

}  // namespace quire
