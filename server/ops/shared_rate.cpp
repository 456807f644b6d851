#include "server/ops/shared_rate.h"

#include <algorithm>

namespace quire {

namespace {

constexpr double kRatePeriod = 60.0;  // seconds

double capacity_of(const SharedRate::Limit& limit) {
  return static_cast<double>(limit.per_minute);
}

double part_of(double amount, const SharedRate::Limit& limit) {
  return amount / static_cast<double>(std::max<std::int64_t>(1, limit.num_replicas));
}

// What a bucket of this capacity gains; clocks that were set back give nothing.
double gain(double capacity, SharedRate::Time since, SharedRate::Time now) {
  return std::max(0.0, std::chrono::duration<double>(now - since).count()) * capacity / kRatePeriod;
}

}  // namespace

// The bucket as it would be without what was taken here since the last answer.
double SharedRate::known(const Limit& limit, Time now) const {
  const double capacity = capacity_of(limit);
  return is_answered_ ? std::min(capacity, bucket_ + gain(capacity, answered_at_, now)) : capacity;
}

double& SharedRate::refilled_part(const Limit& limit, Time now) {
  const double most = part_of(capacity_of(limit), limit);
  part_ = is_part_used_ ? std::min(most, part_ + gain(most, part_at_, now)) : most;
  part_at_ = std::max(part_at_, now);
  is_part_used_ = true;
  return part_;
}

double SharedRate::level(const Limit& limit, Time now) {
  return has_store_ ? known(limit, now) - unreported_ - reported_ : refilled_part(limit, now);
}

double SharedRate::seconds_until(double wanted, const Limit& limit, Time now) {
  const double part = part_of(capacity_of(limit), limit);
  const double needed = has_store_ ? wanted : std::min(wanted, part);
  return std::max(0.0, needed - level(limit, now)) * kRatePeriod / (has_store_ ? capacity_of(limit) : part);
}

// A request larger than this replica's part needs the whole part, and leaves a debt.
bool SharedRate::may_take(double wanted, const Limit& limit, Time now) {
  if (refilled_part(limit, now) >= std::min(wanted, part_of(capacity_of(limit), limit))) return true;
  return has_store_ && unreported_ == 0.0 && reported_ == 0.0 && known(limit, now) >= wanted;
}

void SharedRate::take(double amount, const Limit& limit, Time now) {
  refilled_part(limit, now) -= amount;
  unreported_ += amount;
}

// After a failure the parts of all replicas together stand for the bucket: what this one lacks of its part is what it
// took beyond what the rate refilled.
SharedRate::Report SharedRate::begin_report(const Limit& limit, Time now) {
  const double bucket = known(limit, now);
  if (!has_store_) unreported_ = std::max(0.0, part_of(bucket, limit) - refilled_part(limit, now));
  is_asking_ = true;
  is_refused_ = false;
  reported_ = unreported_;
  unreported_ = 0.0;
  return {reported_, bucket};
}

void SharedRate::note_answer(double level, const Limit& limit, Time now) {
  const double capacity = capacity_of(limit);
  bucket_ = std::min(level, capacity);
  answered_at_ = now;
  is_answered_ = true;
  has_store_ = true;
  is_asking_ = false;
  reported_ = 0.0;
  refilled_part(limit, now) = part_of(bucket_, limit) - unreported_;
}

void SharedRate::note_failure(const Limit& limit, Time now) {
  refilled_part(limit, now);
  unreported_ += reported_;
  reported_ = 0.0;
  is_asking_ = false;
  has_store_ = false;
}

}  // namespace quire
