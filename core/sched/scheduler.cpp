#include "core/sched/scheduler.h"

#include <algorithm>
#include <tuple>

#include "kernels/check.h"

namespace quire {

namespace {

constexpr int kWindow = 8;       // waiting requests of a queue that are looked at for what they share
constexpr int kMaxBypassed = 8;  // times that a waiting request lets one with more of its prompt cached go first
constexpr std::int64_t kMinPromptChunk = 16;
// A sequence at most so far behind streams: one token, or a few that a grammar forced.
constexpr std::int64_t kMaxStreamingTokens = 32;

// A prompt of which so much is cached continues a conversation, rather than just beginning like many others.
constexpr double kReturningPart = 0.9;

auto importance(const Sequence& sequence) {
  return std::tuple(sequence.level, sequence.request->arrival, sequence.id);
}

// Under kPriority the level ages as the order of waiting does, so that the most important sequence there is stays so
// whoever comes later: nobody is preempted for ever.
std::int64_t level_of(const Request& request, const SchedulerOptions& options) {
  return options.policy == SchedulerPolicy::kPriority ? aged_rank(request, options.priority_aging_s) : request.priority;
}

bool more_important(const Sequence* a, const Sequence* b) {
  return importance(*a) < importance(*b);
}

bool equally_important(const Sequence& a, const Sequence& b) {
  return a.level == b.level && a.request->arrival == b.request->arrival;
}

// Blocks held for each token generated: what giving up `a` frees for what it costs.
bool holds_more_for_less(const Sequence& a, const Sequence& b) {
  const auto blocks_a = static_cast<std::int64_t>(a.table.blocks.size());
  const auto blocks_b = static_cast<std::int64_t>(b.table.blocks.size());
  return blocks_a * (b.num_generated() + 1) > blocks_b * (a.num_generated() + 1);
}

bool has_bound(const Sequence& sequence) {
  return sequence.max_chunk != Sequence::kUnbounded;
}

bool streams(const Sequence& sequence) {
  return sequence.prompt_computed() && sequence.num_remaining() <= kMaxStreamingTokens;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvCache& kv) : options_(options), kv_(kv), waiting_(options) {
  const std::int64_t pool_tokens = kv.pool().num_blocks() * kv.block_size();
  options_.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, pool_tokens) : pool_tokens;
  running_.reserve(static_cast<std::size_t>(options.max_num_seqs));
}

Result<void> Scheduler::check(const Request& request) const {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t num_new = request.pooling == Pooling::kNone ? request.sampling.max_tokens : 0;
  if (num_prompt + num_new > options_.max_model_len) {
    return invalid("This model's maximum context length is " + std::to_string(options_.max_model_len) +
                       " tokens. However, you requested " + std::to_string(num_prompt + num_new) + " tokens (" +
                       std::to_string(num_prompt) + " in the prompt, " + std::to_string(num_new) +
                       " for the completion). Please reduce the length of either one.",
                   "max_tokens", "context_length_exceeded");
  }
  if (request.num_choices > options_.max_num_seqs) {
    return invalid("n is " + std::to_string(request.num_choices) + ", and at most " +
                       std::to_string(options_.max_num_seqs) + " sequences run at once",
                   "n", "too_many_choices");
  }
  return {};
}

void Scheduler::add(Sequence& sequence) {
  QUIRE_CHECK(sequence.state == Sequence::State::kNew && !sequence.tokens.empty(),
              "a sequence is added once, with tokens");
  kv_.open(sequence.table, sequence.cache_salt);
  sequence.level = level_of(*sequence.request, options_);
  sequence.state = Sequence::State::kWaiting;
  waiting_.began(sequence);
  waiting_.add(sequence);
  blocked_ = nullptr;
}

std::span<Sequence* const> Scheduler::next_to_start() {
  next_to_start_.clear();
  std::int64_t places = num_places_left();
  std::int64_t blocks = kv_.pool().num_available() - num_running();
  waiting_.for_each_first(kWindow, [&](Sequence& sequence, bool) {
    places -= 1;
    blocks -= kv_.blocks_for(sequence.num_tokens());
    if (places < 0 || blocks < 0) return false;
    next_to_start_.push_back(&sequence);
    return true;
  });
  return next_to_start_;
}

void Scheduler::schedule(StepPlan& plan, const StepLimits& limits) {
  plan.clear();
  limits_ = limits;
  budget_ = options_.max_num_batched_tokens;
  num_bounded_ = 0;
  place_streaming(plan);
  prompt_budget_ = prompt_budget(plan);
  place_prompts(plan);
  if (plan.preempted.empty()) admit_waiting(plan);
  if (!plan.empty()) kv_.take_due_copies(plan.transfers.copies);
}

void Scheduler::place_streaming(StepPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && budget_ > 0;) {
    Sequence& sequence = *running_[i];
    if (streams(sequence) && sequence.num_remaining() > 0) {
      const std::int64_t num_tokens = std::min(sequence.num_remaining(), budget_);
      if (!make_room(plan, sequence, num_tokens)) {
        preempt(plan, sequence);  // leaves running_[i] to the next one
        continue;
      }
      place(plan, sequence, num_tokens);
      ++plan.num_streaming;
    }
    ++i;
  }
}

// Prompts in progress have had their blocks since they were admitted; only a long text that a grammar forced asks for
// more.
void Scheduler::place_prompts(StepPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && prompt_budget_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (streams(sequence) || !has_turn(sequence)) continue;
    sequence.num_computed += kv_.adopt(sequence.table, sequence.tokens, sequence.num_computed, sequence.prefix_limit());
    if (make_room(plan, sequence, chunk(sequence))) place_chunk(plan, sequence);
  }
}

void Scheduler::admit_waiting(StepPlan& plan) {
  if (blocked_ != nullptr && !running_.empty() && kv_.pool().num_available() < blocked_need_) return;
  blocked_ = nullptr;
  while (prompt_budget_ > 0 && num_places_left() > 0 && !waiting_.empty()) {
    PrefixMatch match;
    Sequence* const chosen = choose_waiting(match);
    if (chosen == nullptr || !try_start(plan, *chosen, match)) return;
  }
}

void Scheduler::place(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens) {
  plan.entries.push_back({&sequence, num_tokens});
  plan.num_tokens += num_tokens;
  sequence.num_scheduled = num_tokens;
  budget_ -= num_tokens;
}

void Scheduler::place_chunk(StepPlan& plan, Sequence& sequence) {
  const std::int64_t num_tokens = chunk(sequence);
  place(plan, sequence, num_tokens);
  plan.num_prompt_tokens += num_tokens;
  prompt_budget_ -= num_tokens;
  if (has_bound(sequence)) num_bounded_ += num_tokens;
}

std::int64_t Scheduler::chunk(const Sequence& sequence) const {
  const std::int64_t bound = has_bound(sequence) ? sequence.max_chunk - num_bounded_ : sequence.max_chunk;
  // To where a recurrent state is to be kept.
  const std::int64_t border = kv_.snapshot_border(sequence.num_prompt_tokens) - sequence.num_computed;
  return std::min({sequence.num_remaining(), prompt_budget_, bound, border > 0 ? border : Sequence::kUnbounded});
}

// False where others with a bounded chunk, more important ones, have taken this step's share.
bool Scheduler::has_turn(const Sequence& sequence) const {
  return !has_bound(sequence) || num_bounded_ < sequence.max_chunk;
}

bool Scheduler::make_room(StepPlan& plan, Sequence& sequence, std::int64_t num_tokens) {
  const std::int64_t wanted = sequence.num_computed + num_tokens;
  while (!kv_.grow(sequence.table, sequence.num_computed, wanted, plan.transfers.copies)) {
    Sequence* const victim = choose_victim(sequence);
    if (victim == &sequence) return false;
    preempt(plan, *victim);
  }
  return true;
}

// The least important sequence that is not in the plan, `sequence` itself where all below it are. Among those that
// arrived together (the choices of one request), the one that holds most blocks for what it has generated.
Sequence* Scheduler::choose_victim(const Sequence& sequence) const {
  auto candidate = running_.rbegin();
  while (*candidate != &sequence && (*candidate)->num_scheduled > 0)
    ++candidate;
  Sequence* victim = *candidate;
  for (; *candidate != &sequence; ++candidate) {
    const Sequence& other = *candidate[1];
    if (!equally_important(other, *victim)) break;
    if (other.num_scheduled == 0 && holds_more_for_less(other, *victim)) victim = candidate[1];
  }
  return victim;
}

void Scheduler::release(Sequence& sequence, WhenEvicted when_evicted) {
  const std::int64_t num_known = sequence.num_known_computed();  // a pending token may be known by now
  kv_.commit(sequence.table, sequence.tokens, num_known);
  if (num_known < sequence.num_computed) kv_.drop_state(sequence.table);  // it is ahead
  kv_.release(sequence.table, sequence.tokens, num_known, when_evicted);
}

void Scheduler::preempt(StepPlan& plan, Sequence& sequence) {
  leave_running(sequence);
  const bool swapped = swaps(sequence);
  release(sequence, swapped ? WhenEvicted::kOffered : WhenEvicted::kForgotten);
  num_swaps_ += swapped ? 1 : 0;
  sequence.num_computed = 0;
  sequence.state = Sequence::State::kWaiting;
  ++sequence.num_preemptions;
  ++num_preemptions_;
  waiting_.add(sequence);
  plan.preempted.push_back(&sequence);
  blocked_ = nullptr;
}

// Only what nobody shares is lost, and of a block that is not full at most its tokens: those are computed either way.
bool Scheduler::swaps(const Sequence& victim) const {
  if (!limits_.swap_block_s || options_.preemption == Preemption::kRecompute) return false;
  if (options_.preemption == Preemption::kSwap) return true;
  const auto full = std::span(victim.table.blocks).first(static_cast<std::size_t>(victim.table.num_entered));
  const std::int64_t num_own =
      std::count_if(full.begin(), full.end(), [&](BlockId block) { return kv_.pool().num_references(block) == 1; });
  return static_cast<double>(num_own) * *limits_.swap_block_s <= cost_.prompt_seconds(0, num_own * kv_.block_size());
}

// The first in policy order; or of the few behind it, with the same priority, the one that finds most of its prompt
// cached. Those whose next tokens somebody is computing right now wait for them, and those without a turn for theirs,
// and those whose blocks come back from a tier below for them.
Sequence* Scheduler::choose_waiting(PrefixMatch& match) {
  Sequence* first = nullptr;
  Sequence* chosen = nullptr;
  waiting_.for_each_first(kWindow, [&](Sequence& sequence, bool next_queue) {
    if (next_queue && first != nullptr) return false;
    if (first != nullptr && sequence.request->priority != first->request->priority) return false;
    if (!has_turn(sequence) || sequence.table.is_restoring) return true;
    const PrefixMatch found = kv_.match(sequence.table, sequence.tokens, sequence.prefix_limit());
    if (computed_by_another(sequence, found)) return true;
    if (first == nullptr) {
      first = chosen = &sequence;
      match = found;
      return options_.prefix_aware && !sequence.has_started && sequence.num_bypassed < kMaxBypassed;
    }
    if (kv_.match_tokens(found) > kv_.match_tokens(match)) {
      chosen = &sequence;
      match = found;
    }
    return true;
  });
  if (chosen != first) ++first->num_bypassed;
  return chosen;
}

// Nobody waits for one who waits: the other is running, and goes on whatever this sequence does.
bool Scheduler::computed_by_another(const Sequence& sequence, const PrefixMatch& match) const {
  if (!kv_.prefix_caching() || kv_.has_states()) return false;  // a state is of use only where a snapshot is made
  const std::int64_t position = (std::int64_t{sequence.table.num_entered} + match.num_blocks) * kv_.block_size();
  const std::int64_t useful = std::min<std::int64_t>(kv_.block_size(), sequence.prefix_limit() - position);
  if (useful <= match.num_partial_tokens) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    if (other->prompt_computed() || other->table.node != match.node) return false;
    const std::int64_t begin = std::int64_t{other->table.num_entered} * kv_.block_size();
    if (other->num_tokens() - begin < useful) return false;
    const auto wanted = sequence.tokens.begin() + position;
    return std::equal(wanted, wanted + useful, other->tokens.begin() + begin);
  });
}

bool Scheduler::try_start(StepPlan& plan, Sequence& sequence, const PrefixMatch& match) {
  // One block to grow for each that runs: without it the newcomer would soon be preempted again.
  const std::int64_t need = kv_.blocks_needed(sequence.table, match, sequence.num_tokens()) + num_running();
  if ((!running_.empty() && kv_.pool().num_available() < need) ||
      !kv_.admit(sequence.table, match, sequence.num_tokens(), plan.transfers.copies)) {
    blocked_ = &sequence;
    blocked_need_ = need;
    return false;
  }
  start(plan, sequence, match);
  return true;
}

void Scheduler::start(StepPlan& plan, Sequence& sequence, const PrefixMatch& match) {
  waiting_.remove(sequence);
  sequence.num_computed = kv_.match_tokens(match);
  if (!sequence.has_started) {
    sequence.has_started = true;
    sequence.num_cached_tokens = sequence.num_computed;
    sequence.table.is_returning =
        static_cast<double>(sequence.num_computed) >= kReturningPart * static_cast<double>(sequence.num_tokens());
    prefix_queries_ += static_cast<std::uint64_t>(sequence.num_tokens());
    prefix_hits_ += static_cast<std::uint64_t>(sequence.num_computed);
    waiting_.charge(sequence, sequence.num_remaining());
    plan.started.push_back(&sequence);
  }
  reserve_room(sequence);
  enter_running(sequence);
  place_chunk(plan, sequence);
}

// All that the sequence can grow to, so that growing allocates nothing.
void Scheduler::reserve_room(Sequence& sequence) const {
  const std::int64_t most = sequence.num_prompt_tokens + std::max(sequence.request->sampling.max_tokens, 0);
  sequence.tokens.reserve(static_cast<std::size_t>(most));
  kv_.reserve(sequence.table, most);
}

void Scheduler::enter_running(Sequence& sequence) {
  sequence.state = Sequence::State::kRunning;
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, more_important), &sequence);
}

void Scheduler::leave_running(Sequence& sequence) {
  const auto place = std::lower_bound(running_.begin(), running_.end(), &sequence, more_important);
  QUIRE_CHECK(place != running_.end() && *place == &sequence, "a running sequence has one place");
  running_.erase(place);
}

void Scheduler::commit(StepPlan& plan, const StepOutput& output) {
  StepTerms terms;
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const StepEntry& entry = plan.entries[i];
    const EntryOutput done = output.of(plan, i);
    const std::int64_t num_kept = done.num_computed - (entry.num_drafts - done.num_accepted);
    Sequence& sequence = *entry.sequence;
    const bool was_streaming = sequence.prompt_computed();
    if (was_streaming) {
      terms.add_stream(sequence.num_computed);
    } else {
      terms.add_prompt(sequence.num_computed, done.num_computed);
    }
    sequence.num_scheduled = 0;
    sequence.num_computed += num_kept;
    kv_.commit(sequence.table, sequence.tokens, sequence.num_known_computed());
    if (was_streaming) {
      waiting_.charge(sequence, num_kept);
      continue;
    }
    const std::int64_t border = kv_.snapshot_border(sequence.num_prompt_tokens);
    if (sequence.num_computed == border) kv_.keep_snapshot(sequence.table, sequence.tokens, border);
    if (sequence.prompt_computed()) {
      kv_.enter_partial(sequence.table, sequence.tokens, sequence.num_computed);
      if (border == 0) kv_.keep_snapshot(sequence.table, sequence.tokens, sequence.num_computed);
      blocked_ = nullptr;
    }
  }
  cost_.observe(terms, output.seconds);
}

void Scheduler::abandon(StepPlan& plan) {
  for (const StepEntry& entry : plan.entries)
    entry.sequence->num_scheduled = 0;
  plan.clear();
}

void Scheduler::fork(Sequence& parent, Sequence& child) {
  QUIRE_CHECK(child.state == Sequence::State::kNew, "a new sequence is forked");
  kv_.open(child.table, parent.cache_salt);
  child.num_cached_tokens = parent.num_cached_tokens;
  child.has_started = true;
  child.is_choice = true;
  child.level = parent.level;
  waiting_.began(child);
  if (num_places_left() == 0 || parent.state != Sequence::State::kRunning || !kv_.can_fork()) {
    child.state = Sequence::State::kWaiting;
    waiting_.add(child);
    return;
  }
  child.num_computed = std::min(parent.num_computed, child.num_tokens());
  kv_.fork(parent.table, child.table, child.num_computed);
  reserve_room(child);
  enter_running(child);
}

void Scheduler::finish(Sequence& sequence) {
  QUIRE_CHECK(sequence.num_scheduled == 0, "a plan is committed before its sequences finish");
  if (sequence.state == Sequence::State::kRunning) {
    leave_running(sequence);
    release(sequence, WhenEvicted::kOffered);
  } else if (sequence.state == Sequence::State::kWaiting) {
    waiting_.remove(sequence);
    if (blocked_ == &sequence) blocked_ = nullptr;
  } else {
    return;
  }
  waiting_.ended(sequence);
  kv_.close(sequence.table);
  sequence.state = Sequence::State::kDone;
}

std::int64_t Scheduler::prompt_budget(const StepPlan& plan) const {
  if (options_.target_itl_ms <= 0.0 || plan.num_streaming == 0 || !cost_.known()) return budget_;
  StepTerms streams;
  for (const StepEntry& entry : plan.entries)
    streams.add_stream(entry.sequence->num_computed);
  const double streams_s = cost_.seconds(streams);
  // Prompts are not starved by a target that streams alone use up.
  const double prompts_s = std::max(options_.target_itl_ms / 1000.0 - streams_s, streams_s);
  const std::int64_t fitting = cost_.prompt_tokens_within(prompts_s, 0);
  return std::min(budget_, std::max(fitting, kMinPromptChunk));
}

}  // namespace quire
