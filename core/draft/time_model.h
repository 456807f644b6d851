// DraftTimeModel: the time that a drafting model takes: of a round, for each number of its rows, and of a row that it
// lacks; and the balance of what drafting has cost and saved. Engine thread only. Times are arguments; the time of
// verifying drafts is the scheduler's StepCost. Invariants: a price that was too high falls until a round is tried
// again; if no draft is ever accepted, catching up takes at most 1 % of the time, besides the rows of the sequence
// begun before the balance fell below zero.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

class DraftTimeModel {
 public:
  // A round of `num_rows` rows, at least one, took `seconds`.
  void note_round(std::int64_t num_rows, double seconds) {
    credit(0.0 - seconds);
    if (seconds <= 0.0) return;
    Price& price = prices_[place(num_rows)];
    ++price.num_observed;
    if (price.num_observed <= kNumFirst) {
      price.seconds = price.num_observed == 1 ? seconds : std::min(price.seconds, seconds);
    } else {
      price.seconds += kWeight * (std::min(seconds, kMostOfPrice * price.seconds) - price.seconds);
    }
  }
  // A round was not worth its price.
  void note_refused(std::int64_t num_rows) {
    const std::size_t nearest = nearest_known(num_rows);
    if (nearest < prices_.size()) prices_[nearest].seconds *= kKeptIfRefused;
  }
  // Price at the nearest number of rows that was measured often enough; 0: none was.
  double round_seconds(std::int64_t num_rows) const {
    const std::size_t nearest = nearest_known(num_rows);
    return nearest < prices_.size() ? prices_[nearest].seconds : 0.0;
  }

  // The next verified drafts save `token_seconds` for each that is accepted, and cost `row_seconds` each.
  void set_step_prices(double token_seconds, double row_seconds) {
    token_seconds_ = token_seconds;
    verified_row_seconds_ = row_seconds;
  }
  void note_verified(std::int64_t num_verified, std::int64_t num_accepted) {
    credit(static_cast<double>(num_accepted) * token_seconds_ -
           static_cast<double>(num_verified) * verified_row_seconds_);
  }
  void note_step(double seconds) { credit(kShare * seconds); }
  // The drafting model computed `num_rows` rows that it lacked of a sequence.
  void note_lacking(std::int64_t num_rows, double seconds) {
    if (seconds <= 0.0) return;
    credit(-seconds);
    const double each = seconds / static_cast<double>(num_rows);
    row_seconds_ = row_seconds_ == 0.0 ? each : row_seconds_ + kWeight * (each - row_seconds_);
  }

  // Whether the lacking rows of another sequence may be begun. With many streams, drafts pay only if they are verified
  // together: so if most drafts are accepted, some sequences are begun in advance.
  bool may_catch_up(bool is_mostly_accepted) const { return balance_ >= (is_mostly_accepted ? -kMostAdvanced : 0.0); }
  double row_seconds() const { return row_seconds_; }  // of a lacking row; 0: not yet known
  // Number of lacking rows that take about `seconds`.
  std::int64_t rows_within(double seconds) const {
    if (row_seconds_ == 0.0 || seconds <= 0.0) return kMostRows;
    return std::clamp(static_cast<std::int64_t>(seconds / row_seconds_), kLeastRows, kMostRows);
  }

  static constexpr std::int64_t kLeastRows = 16;  // lacking rows at once
  static constexpr std::int64_t kMostRows = 128;

 private:
  static constexpr double kWeight = 1.0 / 8.0;  // weight of the last measurement
  static constexpr int kNumFirst = 3;           // first rounds are cold: the cheapest of them counts
  static constexpr double kMostOfPrice = 2.0;   // a round counts for at most this multiple of the price
  static constexpr double kKeptIfRefused = 0.99609375;
  static constexpr std::int64_t kMostCounted = 64;
  static constexpr double kShare = 0.01;        // of all steps
  static constexpr double kMostSaved = 10.0;    // seconds
  static constexpr double kMostAdvanced = 2.0;  // seconds

  struct Price {
    double seconds = 0.0;
    int num_observed = 0;
  };

  void credit(double seconds) { balance_ = std::min(balance_ + seconds, kMostSaved); }
  static std::size_t place(std::int64_t num_rows) {
    return static_cast<std::size_t>(std::min(num_rows, kMostCounted) - 1);
  }
  std::size_t nearest_known(std::int64_t num_rows) const {
    const std::size_t wanted = place(num_rows);
    const auto is_known = [&](std::size_t i) { return prices_[i].num_observed >= kNumFirst; };
    for (std::size_t distance = 0; distance < prices_.size(); ++distance) {
      if (wanted >= distance && is_known(wanted - distance)) return wanted - distance;
      if (wanted + distance < prices_.size() && is_known(wanted + distance)) return wanted + distance;
    }
    return prices_.size();
  }

  std::array<Price, static_cast<std::size_t>(kMostCounted)> prices_{};
  double token_seconds_ = 0.0;
  double verified_row_seconds_ = 0.0;
  double balance_ = 0.0;
  double row_seconds_ = 0.0;
};

}  // namespace quire
