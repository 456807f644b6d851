#include "server/ops/keys/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

bool is_limited(const KeyQuota& quota) {
  return quota.requests_per_minute > 0 || quota.tokens_per_minute > 0 || quota.max_concurrent > 0;
}

Error over(const std::string& name, const std::string& what, std::optional<double> seconds) {
  Error error{ErrorKind::kRateLimited, fmt::format("The key '{}' has reached its limit of {}.", name, what),
              "rate_limit_exceeded", "", std::nullopt};
  if (seconds) error.retry_after = std::chrono::seconds(std::max<std::int64_t>(1, std::llround(std::ceil(*seconds))));
  return error;
}

// Formats a duration like OpenAI: 120ms, 1s, 6m0s.
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
  table_->usage_of(name_).num_running -= num_held_;
  table_ = nullptr;
}

QuotaTable::Usage& QuotaTable::usage_of(const std::string& key_name) {
  if (const auto found = usage_.find(key_name); found != usage_.end()) return found->second;
  Usage usage;
  usage.requests.bucket = key_name + ":requests";
  usage.tokens.bucket = key_name + ":tokens";
  return usage_.emplace(key_name, std::move(usage)).first->second;
}

void QuotaTable::list(Rate& rate) {
  if (!rate.is_listed) to_report_.push_back(&rate);
  rate.is_listed = true;
  wake_();
}

double QuotaTable::level(Rate& rate, std::int64_t per_minute, Clock::time_point now) {
  rate.per_minute = per_minute;
  const double own = rate.own.refill(static_cast<double>(per_minute), now);
  return wake_ ? std::min(own, rate.shared.level(limit_of(rate), now)) : own;
}

bool QuotaTable::may_take(Rate& rate, double wanted, std::int64_t per_minute, Clock::time_point now) {
  rate.per_minute = per_minute;
  if (rate.own.refill(static_cast<double>(per_minute), now) < wanted) return false;
  if (!wake_ || rate.shared.may_take(wanted, limit_of(rate), now)) return true;
  rate.shared.note_refused();
  list(rate);
  return false;
}

void QuotaTable::take(Rate& rate, double amount, std::int64_t per_minute, Clock::time_point now) {
  rate.per_minute = per_minute;
  rate.own.refill(static_cast<double>(per_minute), now) -= amount;
  if (!wake_) return;
  rate.shared.take(amount, limit_of(rate), now);
  list(rate);
}

double QuotaTable::seconds_until(Rate& rate, double wanted, Clock::time_point now) const {
  const auto capacity = static_cast<double>(rate.per_minute);
  const double own = TokenBucket::seconds_until(wanted, rate.own.level(capacity, now), capacity);
  return wake_ ? std::max(own, rate.shared.seconds_until(wanted, limit_of(rate), now)) : own;
}

Error QuotaTable::too_soon(const std::string& name, const char* what, double wanted, Rate& rate,
                           Clock::time_point now) const {
  return over(name, fmt::format("{} {} per minute", rate.per_minute, what), seconds_until(rate, wanted, now));
}

Result<QuotaTable::Lease> QuotaTable::admit(const ApiKey& key, Clock::time_point now, QuotaUse use) {
  Lease lease;
  const KeyQuota& quota = key.quota;
  if (!is_limited(quota)) return lease;
  lease.name_ = key.name;
  lease.quota_ = quota;
  const std::lock_guard lock(mutex_);
  Usage& usage = usage_of(key.name);
  const bool runs = use == QuotaUse::kRuns;
  if (runs && quota.max_concurrent > 0 && usage.num_running >= quota.max_concurrent) {
    return tl::make_unexpected(over(key.name, fmt::format("{} concurrent requests", quota.max_concurrent), 1.0));
  }
  if (runs && quota.tokens_per_minute > 0 && level(usage.tokens, quota.tokens_per_minute, now) < 1.0)
    return tl::make_unexpected(too_soon(key.name, "tokens", 1.0, usage.tokens, now));
  if (quota.requests_per_minute > 0) {
    if (!may_take(usage.requests, 1.0, quota.requests_per_minute, now))
      return tl::make_unexpected(too_soon(key.name, "requests", 1.0, usage.requests, now));
    take(usage.requests, 1.0, quota.requests_per_minute, now);
  }
  if (!runs) return lease;
  ++usage.num_running;
  lease.table_ = this;
  lease.num_held_ = 1;
  return lease;
}

Result<void> QuotaTable::Lease::hold(std::int64_t num_sequences) {
  if (table_ == nullptr) return {};
  const std::lock_guard lock(table_->mutex_);
  Usage& usage = table_->usage_of(name_);
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
  Rate& rate = table_->usage_of(name_).requests;
  if (!table_->may_take(rate, wanted, quota_.requests_per_minute, now))
    return tl::make_unexpected(table_->too_soon(name_, "requests", wanted, rate, now));
  table_->take(rate, wanted, quota_.requests_per_minute, now);
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
  Rate& rate = table_->usage_of(name_).tokens;
  if (!table_->may_take(rate, wanted, quota_.tokens_per_minute, now))
    return tl::make_unexpected(table_->too_soon(name_, "tokens", wanted, rate, now));
  table_->take(rate, wanted, quota_.tokens_per_minute, now);
  return {};
}

void QuotaTable::Lease::take_generated(std::int64_t num_tokens, Clock::time_point now) {
  if (table_ == nullptr || quota_.tokens_per_minute == 0) return;
  const std::lock_guard lock(table_->mutex_);
  table_->take(table_->usage_of(name_).tokens, static_cast<double>(num_tokens), quota_.tokens_per_minute, now);
}

std::vector<std::pair<std::string, std::string>> QuotaTable::headers(const ApiKey& key, Clock::time_point now) {
  std::vector<std::pair<std::string, std::string>> fields;
  const std::lock_guard lock(mutex_);
  const auto add = [&](const char* what, Rate& rate, std::int64_t per_minute) {
    if (per_minute == 0) return;
    const double now_left = level(rate, per_minute, now);
    const auto left = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(now_left)));
    fields.push_back({fmt::format("x-ratelimit-limit-{}", what), std::to_string(per_minute)});
    fields.push_back({fmt::format("x-ratelimit-remaining-{}", what), std::to_string(left)});
    fields.push_back(
        {fmt::format("x-ratelimit-reset-{}", what), show(seconds_until(rate, static_cast<double>(per_minute), now))});
  };
  if (key.quota.requests_per_minute == 0 && key.quota.tokens_per_minute == 0) return fields;
  Usage& usage = usage_of(key.name);
  add("requests", usage.requests, key.quota.requests_per_minute);
  add("tokens", usage.tokens, key.quota.tokens_per_minute);
  return fields;
}

void QuotaTable::share(std::int64_t num_replicas, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  num_replicas_ = num_replicas;
  wake_ = std::move(wake);
}

void QuotaTable::set_num_replicas(std::int64_t num_replicas) {
  const std::lock_guard lock(mutex_);
  num_replicas_ = num_replicas;
}

std::vector<QuotaTable::Report> QuotaTable::begin_reports(Clock::time_point now) {
  std::vector<Report> reports;
  const std::lock_guard lock(mutex_);
  reports.reserve(to_report_.size());
  for (Rate* const rate : to_report_) {
    rate->is_listed = false;
    if (!rate->shared.wants_report()) continue;  // the answer puts it back on the list
    const SharedRate::Report ask = rate->shared.begin_report(limit_of(*rate), now);
    reports.push_back({rate->bucket, rate->per_minute, ask, rate});
  }
  to_report_.clear();
  return reports;
}

void QuotaTable::note_answer(const Report& report, double level, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  report.rate->shared.note_answer(level, limit_of(*report.rate), now);
  if (wake_ && report.rate->shared.wants_report()) list(*report.rate);
}

void QuotaTable::note_failure(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, usage] : usage_) {
    for (Rate* const rate : {&usage.requests, &usage.tokens}) {
      if (rate->per_minute == 0) continue;
      rate->shared.note_failure(limit_of(*rate), now);
      if (wake_) list(*rate);  // retries until the store is back
    }
  }
}

}  // namespace quire
