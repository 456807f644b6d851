// SharedRate: one replica's view of a rate that all replicas of a fleet share through a store, which holds one bucket
// for it. One thread at a time. It knows no clock and no store: times and answers are arguments, and nothing waits.
// Invariants: every amount taken is reported once, so that the sum over time is exact; between two answers a replica
// takes at most its share, 1/N of the bucket's last level, refilled at 1/N of the rate, or one request that the bucket
// had room for; without a store it has only that share, and the N shares add up to the rate.
#pragma once

#include <cstdint>

#include "server/ops/keys/token_bucket.h"

namespace quire {

class SharedRate {
 public:
  using Time = TokenBucket::Time;
  struct Limit {
    std::int64_t per_minute = 0;  // at least 1
    std::int64_t num_replicas = 1;
  };

  bool may_take(double wanted, const Limit& limit, Time now);
  // Generated tokens may exceed the level and leave a debt.
  void take(double amount, const Limit& limit, Time now);
  // The fleet's remaining level as known here: the bucket at the last answer, refilled, minus what this replica took
  // since. Without a store: this replica's share.
  double level(const Limit& limit, Time now);

  // Seconds until `wanted` may be taken, as far as known here.
  double seconds_until(double wanted, const Limit& limit, Time now);

  // Returns whether to ask the store: something was taken that it does not know, or a request was refused.
  bool wants_report() const { return !is_asking_ && (unreported_ != 0.0 || is_refused_); }
  void note_refused() { is_refused_ = true; }

  struct Report {
    double amount = 0.0;  // to take from the bucket
    double level = 0.0;   // the bucket's level if the store has none
  };
  Report begin_report(const Limit& limit, Time now);
  // The bucket's level after the report, and the number of replicas by then.
  void note_answer(double level, const Limit& limit, Time now);
  // The store is not asked until the next begin_report(). An unanswered report may count twice.
  void note_failure(const Limit& limit, Time now);

 private:
  double& refilled_part(const Limit& limit, Time now);

  TokenBucket bucket_;  // the store's last level minus later use; full before the first answer
  TokenBucket part_;    // this replica's share
  double unreported_ = 0.0;
  double reported_ = 0.0;  // sent but not answered
  bool is_asking_ = false;
  bool is_refused_ = false;
  bool has_store_ = false;
};

}  // namespace quire
