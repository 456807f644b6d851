#include "server/ops/keys/failure_limiter.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr double kSecondsPerMinute = 60.0;

}  // namespace

double FailureLimiter::level_at(const Bucket& bucket, double capacity, Clock::time_point now) {
  const double passed = std::chrono::duration<double>(now - bucket.at).count();
  return std::min(capacity, bucket.level + std::max(0.0, passed) * capacity / kSecondsPerMinute);
}

FailureLimiter::Bucket& FailureLimiter::bucket_of(const std::string& address, double capacity, Clock::time_point now) {
  const auto found = buckets_.find(address);
  if (found != buckets_.end()) return found->second;
  if (buckets_.size() >= kMostAddresses) {
    std::erase_if(buckets_, [&](const auto& each) { return level_at(each.second, capacity, now) >= capacity; });
  }
  if (buckets_.size() >= kMostAddresses) return shared_;
  return buckets_.emplace(address, Bucket{capacity, now}).first->second;
}

std::optional<std::chrono::seconds> FailureLimiter::count(const std::string& address, std::int64_t per_minute,
                                                          Clock::time_point now) {
  if (per_minute <= 0) return std::nullopt;
  const auto capacity = static_cast<double>(per_minute);
  const std::lock_guard lock(mutex_);
  Bucket& bucket = bucket_of(address, capacity, now);
  bucket.level = level_at(bucket, capacity, now);
  bucket.at = now;
  if (bucket.level >= 1.0) {
    bucket.level -= 1.0;
    return std::nullopt;
  }
  const double wait = (1.0 - bucket.level) * kSecondsPerMinute / capacity;
  return std::chrono::seconds(std::max<std::int64_t>(1, std::llround(std::ceil(wait))));
}

}  // namespace quire
