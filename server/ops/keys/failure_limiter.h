// FailureLimiter: limits the requests without a valid key from one address. Any thread. Each address has a token bucket
// that holds a minute's worth. Invariant: at most kMostAddresses are known; beyond that, addresses with full buckets
// are forgotten, and if there are none, further addresses share one bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/request/request.h"

namespace quire {

class FailureLimiter {
 public:
  static constexpr std::size_t kMostAddresses = 4096;

  // Counts one failure. Returns the time to wait if the address exceeded its limit; 0 per minute: no limit.
  std::optional<std::chrono::seconds> count(const std::string& address, std::int64_t per_minute, Clock::time_point now);

 private:
  struct Bucket {
    double level = 0.0;
    Clock::time_point at{};
  };
  static double level_at(const Bucket& bucket, double capacity, Clock::time_point now);
  // Requires mutex_.
  Bucket& bucket_of(const std::string& address, double capacity, Clock::time_point now);

  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
  Bucket shared_;
};

}  // namespace quire
