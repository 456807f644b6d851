// TokenBucket: an amount that is refilled to its capacity in a minute. One thread at a time. It knows no clock: times
// are arguments. Invariants: it is full before its first use; clocks that were set back give nothing; a debt is
// refilled too.
#pragma once

#include <algorithm>
#include <chrono>

namespace quire {

class TokenBucket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Refills at this capacity since the last call and returns the level, from which the caller takes.
  double& refill(double capacity, Time now) {
    level_ = level(capacity, now);
    at_ = is_used_ ? std::max(at_, now) : now;
    is_used_ = true;
    return level_;
  }
  double level(double capacity, Time now) const {
    if (!is_used_) return capacity;
    const double passed = std::chrono::duration<double>(now - at_).count();
    return std::min(capacity, level_ + std::max(0.0, passed) * capacity / kSeconds);
  }
  void set(double level, Time now) {
    level_ = level;
    at_ = now;
    is_used_ = true;
  }
  // Time until a bucket of this level and capacity holds `wanted`.
  static double seconds_until(double wanted, double level, double capacity) {
    return std::max(0.0, wanted - level) * kSeconds / capacity;
  }

 private:
  static constexpr double kSeconds = 60.0;

  double level_ = 0.0;
  Time at_{};
  bool is_used_ = false;
};

}  // namespace quire
