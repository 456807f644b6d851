#include "core/sched/policy/admission_policy.h"

namespace quire {

namespace {

constexpr std::int64_t kTurn = 8;  // steps for which one of many keeps its place
// A prompt continues a conversation if at least this share of it is cached; others only share a beginning.
constexpr double kReturningPart = 0.9;

CacheClass cache_class_of(const Request& request, bool is_returning) {
  if (request.is_background) return CacheClass::kBackground;
  if (request.is_retained) return CacheClass::kRetained;
  return is_returning ? CacheClass::kReturning : CacheClass::kPlain;
}

}  // namespace

void AdmissionPolicy::fit(Pass& pass) {
  if (pass.is_short_of_memory || candidates_.has_none()) return;
  candidates_.begin_turn();
  int num_looks = 0;
  bool looks_again = true;
  while (looks_again && running_.num_places_left() > 0 && candidates_.find(pass, kStartingLanes)) {
    looks_again = candidates_.set_roomless_aside() && ++num_looks < StartCandidates::kMostLooks;
    while (running_.num_places_left() > 0) {
      Sequence* const next = candidates_.take_next(pass);
      if (next == nullptr) break;
      if (!try_start(pass, *next)) continue;
      looks_again = true;
      if (options_.policy == SchedulerPolicy::kFair) break;  // the key has been charged: another may be next
    }
  }
}

bool AdmissionPolicy::try_start(Pass& pass, Sequence& sequence) {
  if (sequence.continues_list && !lists_.has_place()) return false;
  const PrefixMatch match = kv_.match(sequence.table, sequence.tokens, sequence.prefix_limit());
  if (candidates_.waits(pass, sequence, match)) return false;
  if (!candidates_.has_room(sequence, match) ||
      !kv_.admit(sequence.table, match, sequence.num_tokens(), pass.plan.transfers.copies)) {
    waiting_.set_aside(sequence);
    return false;
  }
  candidates_.note_start(sequence);
  start(pass, sequence, match);
  return true;
}

void AdmissionPolicy::start(Pass& pass, Sequence& sequence, const PrefixMatch& match) {
  waiting_.remove(sequence);
  sequence.num_computed = kv_.match_tokens(match);
  const PromptShare share{&sequence, PromptOrder(waiting_, sequence)};  // its key pays from the next step on
  if (!sequence.has_started) {
    sequence.has_started = true;
    sequence.num_cached_tokens = sequence.num_computed;
    const bool is_returning =
        static_cast<double>(sequence.num_computed) >= kReturningPart * static_cast<double>(sequence.num_tokens());
    sequence.table.cache_class = cache_class_of(*sequence.request, is_returning);
    prefix_queries_ += static_cast<std::uint64_t>(sequence.num_tokens());
    prefix_hits_ += static_cast<std::uint64_t>(sequence.num_computed);
    waiting_.charge(sequence, sequence.num_remaining());
    pass.plan.started.push_back(&sequence);
  } else {
    sequence.turn_end = pass.step + kTurn;
  }
  sequence.num_bypassed = 0;
  sequence.keeps_blocks = true;
  running_.enter(sequence);
  pass.add_prompt(share);
}

}  // namespace quire
