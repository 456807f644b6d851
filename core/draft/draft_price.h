// DraftPrice: the time of a drafting round, learned for each number of sequences in it. Engine thread only. Times are
// arguments. Invariant: a price that was too high falls until a round is tried again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

class DraftPrice {
 public:
  // A round over `num_sequences` sequences, at least one, took `seconds`; 0 is ignored.
  void observe(std::int64_t num_sequences, double seconds) {
    if (seconds <= 0.0) return;
    Price& price = prices_[place(num_sequences)];
    ++price.num_observed;
    if (price.num_observed <= kNumFirst) {
      price.seconds = price.num_observed == 1 ? seconds : std::min(price.seconds, seconds);
    } else {
      price.seconds += kWeight * (std::min(seconds, kMostOfPrice * price.seconds) - price.seconds);
    }
  }
  // A round was not worth its price.
  void note_refused(std::int64_t num_sequences) {
    const std::size_t nearest = nearest_known(num_sequences);
    if (nearest < prices_.size()) prices_[nearest].seconds *= kKeptIfRefused;
  }

  // Price at the nearest number of sequences that was measured often enough; 0: none was.
  double seconds(std::int64_t num_sequences) const {
    const std::size_t nearest = nearest_known(num_sequences);
    return nearest < prices_.size() ? prices_[nearest].seconds : 0.0;
  }

 private:
  static constexpr int kNumFirst = 3;           // first rounds are cold: the cheapest of them counts
  static constexpr double kWeight = 1.0 / 8.0;  // weight of the last round
  static constexpr double kMostOfPrice = 2.0;   // a round counts for at most this multiple of the price
  static constexpr double kKeptIfRefused = 0.99609375;
  static constexpr std::int64_t kMostCounted = 64;

  struct Price {
    double seconds = 0.0;
    int num_observed = 0;
  };

  static std::size_t place(std::int64_t num_sequences) {
    return static_cast<std::size_t>(std::min(num_sequences, kMostCounted) - 1);
  }
  std::size_t nearest_known(std::int64_t num_sequences) const {
    const std::size_t wanted = place(num_sequences);
    const auto is_known = [&](std::size_t i) { return prices_[i].num_observed >= kNumFirst; };
    for (std::size_t distance = 0; distance < prices_.size(); ++distance) {
      if (wanted >= distance && is_known(wanted - distance)) return wanted - distance;
      if (wanted + distance < prices_.size() && is_known(wanted + distance)) return wanted + distance;
    }
    return prices_.size();
  }

  std::array<Price, static_cast<std::size_t>(kMostCounted)> prices_{};
};

}  // namespace quire
