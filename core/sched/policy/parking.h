// Parking: makes requests with the same beginning compute it once. A waiting sequence is parked until the running
// prompt that computes its next tokens has them. Engine thread only. Invariant: sequences are parked behind running
// ones only, which wait for no other.
#pragma once

#include <cstdint>

#include "core/kv/kv_cache.h"
#include "core/sched/pass.h"
#include "core/sched/waiting_queue.h"

namespace quire {

class Parking {
 public:
  Parking(const KvCache& kv, WaitingQueue& waiting) : kv_(kv), waiting_(waiting) {}

  // Parks the sequence, whose computed prefix is `match`, behind a prompt in progress. False: it can start.
  bool parks(const Pass& pass, Sequence& sequence, const PrefixMatch& match);

 private:
  // The running sequence that a waiting one depends on, and how much of the prompt must be computed before it
  // continues.
  struct Place {
    Sequence* behind = nullptr;
    std::int64_t until = 0;
  };
  Place behind_block(const Pass& pass, const Sequence& sequence, const PrefixMatch& match) const;
  Place behind_state(const Pass& pass, const Sequence& sequence, const PrefixMatch& match) const;
  std::int64_t alike_until(const Sequence& sequence, const Sequence& other) const;

  const KvCache& kv_;
  WaitingQueue& waiting_;
};

}  // namespace quire
