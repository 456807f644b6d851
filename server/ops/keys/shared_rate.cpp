#include "server/ops/keys/shared_rate.h"

#include <algorithm>

namespace quire {

namespace {

double capacity_of(const SharedRate::Limit& limit) {
  return static_cast<double>(limit.per_minute);
}

double part_of(double amount, const SharedRate::Limit& limit) {
  return amount / static_cast<double>(std::max<std::int64_t>(1, limit.num_replicas));
}

}  // namespace

double& SharedRate::refilled_part(const Limit& limit, Time now) {
  return part_.refill(part_of(capacity_of(limit), limit), now);
}

double SharedRate::level(const Limit& limit, Time now) {
  return has_store_ ? bucket_.level(capacity_of(limit), now) - unreported_ - reported_ : refilled_part(limit, now);
}

double SharedRate::seconds_until(double wanted, const Limit& limit, Time now) {
  const double part = part_of(capacity_of(limit), limit);
  const double needed = has_store_ ? wanted : std::min(wanted, part);
  return TokenBucket::seconds_until(needed, level(limit, now), has_store_ ? capacity_of(limit) : part);
}

// A request larger than this replica's share needs the whole share, and leaves a debt.
bool SharedRate::may_take(double wanted, const Limit& limit, Time now) {
  if (refilled_part(limit, now) >= std::min(wanted, part_of(capacity_of(limit), limit))) return true;
  return has_store_ && unreported_ == 0.0 && reported_ == 0.0 && bucket_.level(capacity_of(limit), now) >= wanted;
}

void SharedRate::take(double amount, const Limit& limit, Time now) {
  refilled_part(limit, now) -= amount;
  unreported_ += amount;
}

// After a failure, the shares of all replicas together replace the bucket: this one's deficit in its share is the
// amount taken beyond the rate's refill.
SharedRate::Report SharedRate::begin_report(const Limit& limit, Time now) {
  const double bucket = bucket_.level(capacity_of(limit), now);
  if (!has_store_) unreported_ = std::max(0.0, part_of(bucket, limit) - refilled_part(limit, now));
  is_asking_ = true;
  is_refused_ = false;
  reported_ = unreported_;
  unreported_ = 0.0;
  return {reported_, bucket};
}

void SharedRate::note_answer(double level, const Limit& limit, Time now) {
  const double bucket = std::min(level, capacity_of(limit));
  bucket_.set(bucket, now);
  has_store_ = true;
  is_asking_ = false;
  reported_ = 0.0;
  refilled_part(limit, now) = part_of(bucket, limit) - unreported_;
}

void SharedRate::note_failure(const Limit& limit, Time now) {
  refilled_part(limit, now);
  unreported_ += reported_;
  reported_ = 0.0;
  is_asking_ = false;
  has_store_ = false;
}

}  // namespace quire
