// RowCurve: the time of a step that verifies drafts, relative to a price that is linear in rows. Kernels compute rows
// in tiles, so that the fifth row may cost more than the three before it together. Engine thread only. No clock of its
// own: times are arguments. Invariant: a number of rows that was never measured has the linear price; kMostRows or more
// are one number.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

class RowCurve {
 public:
  // Learns that a step of num_rows with drafts took `seconds`; the linear price predicted `linear`.
  void observe(std::int64_t num_rows, double seconds, double linear) {
    if (num_rows < 1 || !(seconds > 0.0) || !(linear > 0.0)) return;
    ++num_steps_;
    Entry& entry = entries_[place(num_rows)];
    entry.last_step = num_steps_;
    ++entry.num_measured;
    // A larger deviation is mostly the machine's speed, which the linear price follows.
    const double surprise = std::clamp(seconds / linear / entry.ratio - 1.0, -kMostSurprise, kMostSurprise);
    const double weight = std::max(kWeight, 1.0 / static_cast<double>(entry.num_measured + 1));
    entry.ratio = std::clamp(entry.ratio * (1.0 + weight * surprise), kLeastRatio, kMostRatio);
  }
  // Notes that no number of drafts was worth its price: the estimate drifts back to the linear price, in case it was
  // wrong.
  void note_refused(std::int64_t num_rows) {
    if (num_rows < 1) return;
    double& ratio = entries_[place(num_rows)].ratio;
    ratio += kReturn * (1.0 - ratio);
  }

  // The time of a step with so many rows, relative to its linear price.
  double ratio(std::int64_t num_rows) const { return num_rows < 1 ? 1.0 : entries_[place(num_rows)].ratio; }

  // The number of rows for the next step: mostly `usual`, and now and then the number from `least` to `most` that was
  // measured longest ago.
  std::int64_t rows_to_measure(std::int64_t usual, std::int64_t least, std::int64_t most) const {
    if (least < 1 || most > kMostRows || entries_[place(usual)].num_measured < kEnough) return usual;
    std::int64_t oldest = usual;
    for (std::int64_t rows = least; rows <= most; ++rows) {
      if (rows == usual) continue;
      if (oldest == usual || entries_[place(rows)].last_step < entries_[place(oldest)].last_step) oldest = rows;
    }
    const Entry& entry = entries_[place(oldest)];
    const std::int64_t between = entry.num_measured < kEnough ? kStepsBetweenFirst : kStepsBetween;
    return num_steps_ - entry.last_step >= between * (most - least) ? oldest : usual;
  }

 private:
  static constexpr std::int64_t kMostRows = 32;  // with more the arithmetic is nearly linear
  static constexpr double kWeight = 1.0 / 8.0;   // weight of the latest step, after eight
  static constexpr double kReturn = 1.0 / 256.0;
  static constexpr double kMostSurprise = 0.1;
  static constexpr double kLeastRatio = 0.5;
  static constexpr double kMostRatio = 2.0;
  static constexpr std::int64_t kEnough = 8;
  static constexpr std::int64_t kStepsBetweenFirst = 8;  // between two measurements of another number
  static constexpr std::int64_t kStepsBetween = 32;

  struct Entry {
    double ratio = 1.0;
    std::int64_t num_measured = 0;
    std::int64_t last_step = 0;  // the number of the last verifying step with so many rows
  };

  static std::size_t place(std::int64_t num_rows) {
    return static_cast<std::size_t>(std::min(num_rows, kMostRows) - 1);
  }

  std::array<Entry, static_cast<std::size_t>(kMostRows)> entries_{};
  std::int64_t num_steps_ = 0;
};

}  // namespace quire
