#include "server/ops/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr double kMinute = 60.0;

bool is_limited(const KeyQuota& quota) {
  return quota.requests_per_minute > 0 || quota.tokens_per_minute > 0 || quota.max_concurrent > 0;
}

Error over(const std::string& name, const std::string& what, std::optional<double> seconds) {
  Error error{ErrorKind::kRateLimited, fmt::format("The key '{}' has reached its limit of {}.", name, what),
              "rate_limit_exceeded", "", std::nullopt};
  if (seconds) error.retry_after = std::chrono::seconds(std::max<std::int64_t>(1, std::llround(std::ceil(*seconds))));
  return error;
}

// How long a bucket needs to hold `wanted` again.
double wait_for(double wanted, double level, std::int64_t per_minute) {
  return std::max(0.0, wanted - level) * kMinute / static_cast<double>(per_minute);
}

Error too_soon(const std::string& name, const char* what, double wanted, double level, std::int64_t per_minute) {
  return over(name, fmt::format("{} {} per minute", per_minute, what), wait_for(wanted, level, per_minute));
}

// As OpenAI writes it: 120ms, 1s, 6m0s.
std::string show(double seconds) {
  const auto ms = std::llround(std::ceil(seconds * 1000.0));
  if (ms < 1000) return fmt::format("{}ms", ms);
  if (ms < 60'000)
    return ms % 1000 == 0 ? fmt::format("{}s", ms / 1000) : fmt::format("{}.{:03}s", ms / 1000, ms % 1000);
  return fmt::format("{}m{}s", ms / 60'000, ms % 60'000 / 1000);
}

}  // namespace

QuotaTable::Lease& QuotaTable::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  table_ = std::exchange(other.table_, nullptr);
  name_ = std::move(other.name_);
  quota_ = other.quota_;
  num_held_ = other.num_held_;
  return *this;
}

void QuotaTable::Lease::release() {
  if (table_ == nullptr) return;
  const std::lock_guard lock(table_->mutex_);
  table_->usage_[name_].num_running -= num_held_;
  table_ = nullptr;
}

double QuotaTable::refill(Bucket& bucket, std::int64_t per_minute, Clock::time_point now) {
  const auto capacity = static_cast<double>(per_minute);
  const double passed = std::chrono::duration<double>(now - bucket.at).count();
  bucket.level = bucket.used ? std::min(capacity, bucket.level + std::max(0.0, passed) * capacity / kMinute) : capacity;
  bucket.at = now;
  bucket.used = true;
  return bucket.level;
}

Result<QuotaTable::Lease> QuotaTable::admit(const ApiKey& key, Clock::time_point now) {
  Lease lease;
  const KeyQuota& quota = key.quota;
  if (!is_limited(quota)) return lease;
  const std::lock_guard lock(mutex_);
  Usage& usage = usage_[key.name];
  if (quota.max_concurrent > 0 && usage.num_running >= quota.max_concurrent) {
    return tl::make_unexpected(over(key.name, fmt::format("{} concurrent requests", quota.max_concurrent), 1.0));
  }
  if (quota.tokens_per_minute > 0) {
    const double level = refill(usage.tokens, quota.tokens_per_minute, now);
    if (level < 1.0) return tl::make_unexpected(too_soon(key.name, "tokens", 1.0, level, quota.tokens_per_minute));
  }
  if (quota.requests_per_minute > 0) {
    const double level = refill(usage.requests, quota.requests_per_minute, now);
    if (level < 1.0) return tl::make_unexpected(too_soon(key.name, "requests", 1.0, level, quota.requests_per_minute));
    usage.requests.level -= 1.0;
  }
  ++usage.num_running;
  lease.table_ = this;
  lease.name_ = key.name;
  lease.quota_ = quota;
  lease.num_held_ = 1;
  return lease;
}

Result<void> QuotaTable::Lease::hold(std::int64_t num_sequences) {
  if (table_ == nullptr) return {};
  const std::lock_guard lock(table_->mutex_);
  Usage& usage = table_->usage_[name_];
  const std::int64_t after = usage.num_running - num_held_ + num_sequences;
  if (num_sequences > num_held_ && quota_.max_concurrent > 0 && after > quota_.max_concurrent) {
    const bool can_pass = num_sequences <= quota_.max_concurrent;
    return tl::make_unexpected(over(name_, fmt::format("{} concurrent requests", quota_.max_concurrent),
                                    can_pass ? std::optional(1.0) : std::nullopt));
  }
  usage.num_running = after;
  num_held_ = num_sequences;
  return {};
}

// Every sequence counts as a request; the first was counted when it was admitted.
Result<void> QuotaTable::Lease::take_requests(std::int64_t num_further, Clock::time_point now) {
  if (quota_.requests_per_minute == 0 || num_further <= 0) return {};
  const auto wanted = static_cast<double>(num_further);
  if (num_further >= quota_.requests_per_minute) {
    Error error = over(name_, fmt::format("{} requests per minute", quota_.requests_per_minute), std::nullopt);
    error.message += fmt::format(" This one counts as {}.", num_further + 1);
    return tl::make_unexpected(std::move(error));
  }
  const std::lock_guard lock(table_->mutex_);
  Bucket& bucket = table_->usage_[name_].requests;
  const double level = refill(bucket, quota_.requests_per_minute, now);
  if (level < wanted)
    return tl::make_unexpected(too_soon(name_, "requests", wanted, level, quota_.requests_per_minute));
  bucket.level -= wanted;
  return {};
}

Result<void> QuotaTable::Lease::take_prompt(std::int64_t num_tokens, std::int64_t num_sequences,
                                            Clock::time_point now) {
  if (table_ == nullptr) return {};
  if (auto taken = take_requests(num_sequences - 1, now); !taken) return taken;
  if (quota_.tokens_per_minute == 0) return {};
  const auto wanted = static_cast<double>(num_tokens);
  if (num_tokens > quota_.tokens_per_minute) {
    Error error = over(name_, fmt::format("{} tokens per minute", quota_.tokens_per_minute), std::nullopt);
    error.message += fmt::format(" This request alone has {}.", num_tokens);
    return tl::make_unexpected(std::move(error));
  }
  const std::lock_guard lock(table_->mutex_);
  Bucket& bucket = table_->usage_[name_].tokens;
  const double level = refill(bucket, quota_.tokens_per_minute, now);
  if (level < wanted) return tl::make_unexpected(too_soon(name_, "tokens", wanted, level, quota_.tokens_per_minute));
  bucket.level -= wanted;
  return {};
}

void QuotaTable::Lease::take_generated(std::int64_t num_tokens, Clock::time_point now) {
  if (table_ == nullptr || quota_.tokens_per_minute == 0) return;
  const std::lock_guard lock(table_->mutex_);
  Bucket& bucket = table_->usage_[name_].tokens;
  refill(bucket, quota_.tokens_per_minute, now);
  bucket.level -= static_cast<double>(num_tokens);
}

std::vector<std::pair<std::string, std::string>> QuotaTable::headers(const ApiKey& key, Clock::time_point now) {
  std::vector<std::pair<std::string, std::string>> fields;
  const std::lock_guard lock(mutex_);
  const auto add = [&](const char* what, Bucket& bucket, std::int64_t per_minute) {
    if (per_minute == 0) return;
    const double level = refill(bucket, per_minute, now);
    const auto left = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(level)));
    fields.push_back({fmt::format("x-ratelimit-limit-{}", what), std::to_string(per_minute)});
    fields.push_back({fmt::format("x-ratelimit-remaining-{}", what), std::to_string(left)});
    fields.push_back({fmt::format("x-ratelimit-reset-{}", what),
                      show(wait_for(static_cast<double>(per_minute), level, per_minute))});
  };
  if (key.quota.requests_per_minute == 0 && key.quota.tokens_per_minute == 0) return fields;
  Usage& usage = usage_[key.name];
  add("requests", usage.requests, key.quota.requests_per_minute);
  add("tokens", usage.tokens, key.quota.tokens_per_minute);
  return fields;
}

}  // namespace quire
