// RowCurve: how far the time of a step that verifies drafts is from a price that is linear in rows: kernels compute
// rows in tiles, so that the fifth row may cost more than the three before it. Engine thread only. No clock of its own:
// times are arguments. Invariant: a number of rows of which nothing was seen has the linear price.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

class RowCurve {
 public:
  // A step of so many rows, drafts among them, took `seconds`, of which the linear price says `linear`.
  void observe(std::int64_t num_rows, double seconds, double linear) {
    if (num_rows < 1 || num_rows > kMostRows || !(seconds > 0.0) || !(linear > 0.0)) return;
    ++num_steps_;
    Seen& seen = seen_[place(num_rows)];
    seen.at_step = num_steps_;
    ++seen.num_observed;
    // What is further off is mostly the machine's speed, which the linear price follows.
    const double surprise = std::clamp(seconds / linear / seen.ratio - 1.0, -kMostSurprise, kMostSurprise);
    const double weight = std::max(kWeight, 1.0 / static_cast<double>(seen.num_observed + 1));
    seen.ratio = std::clamp(seen.ratio * (1.0 + weight * surprise), kLeastRatio, kMostRatio);
  }

  // Of such a step's time to its linear price.
  double ratio(std::int64_t num_rows) const {
    return num_rows < 1 || num_rows > kMostRows ? 1.0 : seen_[place(num_rows)].ratio;
  }

  // How many rows, from `least` to `most`, a step should have in place of `usual`, for what it teaches: now and then
  // those that were not seen for longest.
  std::int64_t to_try(std::int64_t usual, std::int64_t least, std::int64_t most) const {
    if (least < 1 || usual > kMostRows || seen_[place(usual)].num_observed < kOften) return usual;
    std::int64_t stalest = usual;
    std::int64_t latest = 0;
    for (std::int64_t rows = least; rows <= std::min(most, kMostRows); ++rows) {
      if (rows == usual) continue;
      const std::int64_t at_step = seen_[place(rows)].at_step;
      latest = std::max(latest, at_step);
      if (stalest == usual || at_step < seen_[place(stalest)].at_step) stalest = rows;
    }
    const bool is_known = seen_[place(stalest)].num_observed >= kOften;
    return num_steps_ - latest >= (is_known ? kStepsBetween : kStepsBetweenFirst) ? stalest : usual;
  }

 private:
  static constexpr std::int64_t kMostRows = 32;  // with more the arithmetic is nearly linear
  static constexpr double kWeight = 1.0 / 8.0;   // of the last step, once there were as many
  static constexpr double kMostSurprise = 0.1;
  static constexpr double kLeastRatio = 0.5;
  static constexpr double kMostRatio = 2.0;
  static constexpr std::int64_t kOften = 8;
  static constexpr std::int64_t kStepsBetweenFirst = 8;  // that try others than usual
  static constexpr std::int64_t kStepsBetween = 32;

  struct Seen {
    double ratio = 1.0;
    std::int64_t num_observed = 0;
    std::int64_t at_step = 0;  // of those that verified drafts
  };

  static std::size_t place(std::int64_t num_rows) { return static_cast<std::size_t>(num_rows - 1); }

  std::array<Seen, static_cast<std::size_t>(kMostRows)> seen_{};
  std::int64_t num_steps_ = 0;
};

}  // namespace quire
