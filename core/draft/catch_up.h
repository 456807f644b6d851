// CatchUp: whether a drafting model may compute the rows that it lacks of a sequence before it can draft for it. Engine
// thread only. No clock of its own: times are arguments. What drafting costs is debited, what drafts that were right
// saved is credited, and so is a small share of all steps. Invariant: where no draft is ever right, catching up takes
// that share of the time at most, beside the rows of the sequence begun before the balance fell below zero.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire {

class CatchUp {
 public:
  void note_step(double seconds) { credit(kShare * seconds); }
  // Drafts took `spent` and saved `saved`.
  void note_drafts(double saved, double spent) { credit(saved - spent); }
  // The drafting model computed so many missing rows of one sequence.
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

  // Whether the rows of a further sequence may be begun. Beside many streams drafts pay together only: where those
  // before were right mostly, some sequences are begun in advance.
  bool may_begin() const { return balance_ >= (rate_ >= kMostlyRight ? -kMostAdvanced : 0.0); }
  double row_seconds() const { return row_seconds_; }  // 0: not yet known
  // Rows that take about so long.
  std::int64_t rows_within(double seconds) const {
    if (row_seconds_ == 0.0 || seconds <= 0.0) return kMostRows;
    return std::clamp(static_cast<std::int64_t>(seconds / row_seconds_), kLeastRows, kMostRows);
  }

  static constexpr std::int64_t kLeastRows = 16;  // at once
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
