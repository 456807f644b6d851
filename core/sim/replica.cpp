#include "core/sim/replica.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/check.h"

namespace quire::sim {

namespace {

constexpr double kTick = 1e-6;  // seconds added so that a time rounded to the clock's ticks has passed

// Token that stands for generated text: no prompt has it; one per request.
TokenId output_token(SequenceId id) {
  return TokenId{static_cast<std::int32_t>(-1 - id.value)};
}

Clock::time_point at(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

SchedulerOptions for_states(SchedulerOptions options, std::int64_t num_states) {
  if (num_states > 0 && num_states < options.max_num_seqs) options.max_num_seqs = static_cast<std::int32_t>(num_states);
  return options;
}

// Start of replica `number`'s share in a list that is divided evenly among the replicas.
std::size_t own_part(std::size_t size, std::int32_t number, std::int32_t num_replicas) {
  return size * static_cast<std::size_t>(number) / static_cast<std::size_t>(num_replicas);
}

}  // namespace

Replica::Replica(const SimOptions& options, std::int32_t number, std::int64_t num_blocks, SimReport& report,
                 SimStore* store)
    : options_(options),
      report_(report),
      kv_(num_blocks, options.block_size, options.prefix_caching, content_hash, "", options.num_states,
          {options.window_tokens, options.num_window_parts}),
      tier_(options.tier_blocks * options.block_size * static_cast<std::int64_t>(sizeof(TokenId))),
      scheduler_(for_states(options.scheduler, options.num_states), kv_),
      encoder_(options, kv_, scheduler_, report),
      next_of_streams_(own_part(options.scatter.streams.size(), number, options.num_replicas)),
      next_of_prompts_(own_part(options.scatter.prompts.size(), number, options.num_replicas)) {
  if (options.tier_blocks == 0 && store == nullptr) return;
  // Only the place of a block counts here: it has no bytes, and a byte in the records of a store.
  const std::int64_t block_bytes = store == nullptr ? 0 : 1;
  if (store != nullptr) {
    auto client = std::make_unique<SimStoreClient>(*store, options_, clock_s_, report);
    client_ = client.get();
    shared_.emplace(SharedTierOptions{.block_size = options.block_size, .payload_bytes = {block_bytes}},
                    std::move(client));
  }
  lower_tier_.emplace(kv_, KvBytes{.block = block_bytes}, options.tier_blocks > 0 ? &tier_ : nullptr, nullptr,
                      LowerTierOptions{}, shared_ ? &*shared_ : nullptr);
  if (options.tier_blocks > 0) lower_tier_->set_swap_seconds(options.tier_block_ms / 1000.0);
}

void Replica::arrive(const TraceRequest& request, std::int64_t number, double time_s, Stage stage) {
  auto live = std::make_unique<Live>();
  auto asked = std::make_shared<Request>();
  asked->prompt = prompt_tokens(request, number);
  asked->media = media_of(request);
  asked->sampling.max_tokens = stage == Stage::kPrompt ? 1 : request.num_output_tokens;
  asked->key_name = request.key;
  asked->arrival = at(time_s);
  if (!scheduler_.check(*asked)) {
    ++report_.num_refused;
    report_.num_requests -= stage == Stage::kAnswer ? 1 : 0;
    return;
  }
  live->id = SequenceId{number};
  live->tokens = asked->prompt;
  live->num_prompt_tokens = request.num_prompt_tokens;
  live->num_left = asked->sampling.max_tokens;
  live->request = std::move(asked);
  live->arrival_s = request.arrival_s;
  live->share = &report_.keys[request.key];
  live->stage = stage;
  if (stage == Stage::kPrompt) live->traced = request;
  if (stage != Stage::kAnswer) {
    ++live->share->num_requests;
    ++report_.num_requests;
  }
  encoder_.add(*live, request.images);
  load_ += request.num_prompt_tokens + live->num_left;
  arrived_.push_back(live.get());
  const Live* const address = live.get();
  lives_.emplace(address, std::move(live));
  if (!in_step_) {
    end_slice(time_s);
    clock_s_ = scheduler_.idle() ? std::max(clock_s_, time_s) : clock_s_;
  } else if (plan_.interruptible) {
    end_early(time_s);
  }
}

void Replica::run_until(double time_s) {
  while (true) {
    if (!in_step_ && (!can_begin() || clock_s_ >= time_s)) return;
    if (!in_step_) begin_step();
    if (clock_s_ + output_.seconds > time_s) return;
    end_step();
  }
}

double Replica::next_event_s() const {
  if (in_step_) return clock_s_ + output_.seconds;
  return can_begin() ? clock_s_ : std::numeric_limits<double>::infinity();
}

void Replica::begin_at(double time_s) {
  if (can_begin() && clock_s_ <= time_s) begin_step();
}

void Replica::slow_down(double time_s, double slowdown) {
  if (is_computing()) output_.seconds += (next_event_s() - time_s) * (slowdown / slowdown_ - 1.0);
  slowdown_ = slowdown;
}

void Replica::begin_step() {
  for (Live* live : arrived_) {
    scheduler_.add(*live);
    restore(*live);
  }
  arrived_.clear();
  const std::uint64_t preemptions_before = scheduler_.num_preemptions();
  const std::uint64_t swaps_before = scheduler_.num_swaps();
  const std::int64_t num_restored = move_blocks();
  hand_over();
  StepLimits limits{.can_end_early = options_.can_end_early && options_.num_states == 0};
  if (lower_tier_) limits.swap_block_s = lower_tier_->swap_seconds();
  propose_drafts();
  const bool encodes = encoder_.choose();
  if (encodes) limits.max_seconds = encoder_.share().most_of_model();
  scheduler_.schedule(plan_, limits);
  slice_ = encoder_.share().slice_beside(plan_);
  if (lower_tier_) lower_tier_->take_moves(plan_.transfers.moves);
  QUIRE_CHECK(!plan_.empty() || lower_tier_ || encodes,
              "what waits can start, or its prefix is being restored, or its images encoded");
  for (const Sequence* sequence : plan_.started)
    note_started(static_cast<const Live&>(*sequence));
  output_.clear();
  restore_s_ = options_.tier_blocks > 0 ? static_cast<double>(num_restored) * options_.tier_block_ms / 1000.0 : 0.0;
  if (!plan_.empty()) scatter_ = next_scatter();
  output_.seconds = restore_s_ + (plan_.empty() ? 0.0 : seconds_to_compute(plan_.terms));
  // A replica without other work waits for the store's next answer; blocks that leave in this step are written at its
  // end.
  const bool has_asked = client_ != nullptr && (lower_tier_->is_restoring() || !held_.empty());
  const bool waits = !plan_.has_work() && !encodes && has_asked && !lower_tier_->is_moving();
  if (waits) output_.seconds = std::max(output_.seconds, wait_for_store());
  in_step_ = true;
  report_.num_preemptions += static_cast<std::int64_t>(scheduler_.num_preemptions() - preemptions_before);
  report_.num_swaps += static_cast<std::int64_t>(scheduler_.num_swaps() - swaps_before);
  report_.num_restored_blocks += num_restored;
}

// Factor of the next measured step of the plan's kind.
double Replica::next_scatter() {
  const bool has_prompt = plan_.terms.num_prompt_tokens > 0.0;
  const std::vector<double>& measured = has_prompt ? options_.scatter.prompts : options_.scatter.streams;
  if (measured.empty()) return 1.0;
  std::size_t& next = has_prompt ? next_of_prompts_ : next_of_streams_;
  return measured[next++ % measured.size()];
}

// Seconds until the store's next answer, or until a restore is given up.
double Replica::wait_for_store() const {
  double until_s = client_->next_answer_s();
  if (const auto deadline = lower_tier_->next_deadline()) until_s = std::min(until_s, seconds_of(*deadline) + kTick);
  for (const Held& held : held_)
    until_s = std::min(until_s, seconds_of(held.publication.give_up) + kTick);
  return std::max(kTick, until_s - clock_s_);
}

// Ends the step after the first slice that ends after `time_s`, or at once if slices may be cut: the cut slice is lost.
void Replica::end_early(double time_s) {
  plan_.interruptible = false;
  const std::int64_t slice = plan_.slice_tokens;
  std::int64_t rows = 0;
  do {
    rows = std::min(rows + slice, plan_.num_tokens);
    output_.end_early(plan_, rows);
    output_.seconds = restore_s_ + seconds_to_compute(output_.terms_of(plan_));
  } while (rows < plan_.num_tokens && clock_s_ + output_.seconds < time_s);
  if (plan_.cuts_slices && clock_s_ + output_.seconds > time_s) {
    output_.end_early(plan_, (rows - 1) / slice * slice);
    output_.seconds = time_s - clock_s_;
    output_.cut_slice = true;
  } else if (rows == plan_.num_tokens) {
    output_.entries.clear();
  }
}

void Replica::end_step() {
  in_step_ = false;
  if (lower_tier_) lower_tier_->finish_moves(plan_.transfers.moves, {});
  if (options_.keeps_steps && !plan_.empty()) keep_step();
  clock_s_ += output_.seconds;
  if (!plan_.empty()) finish_step();
  if (!encoder_.choose()) return;
  const double encoding_s = slowdown_ * encoder_.advance(slice_.most_s);
  least_clock_s_ = clock_s_ + std::min(encoding_s, slowdown_ * slice_.least_s);
  clock_s_ += encoding_s;
  report_.busy_s += encoding_s;
}

// The encoder's slice beside the last step ends at `time_s`, if it is not over by then.
void Replica::end_slice(double time_s) {
  const double rest_s = clock_s_ - std::max(time_s, least_clock_s_);
  if (rest_s <= 0.0 || !encoder_.take_back(rest_s / slowdown_)) return;
  clock_s_ -= rest_s;
  report_.busy_s -= rest_s;
}

// Commits the step and gives out its tokens.
void Replica::finish_step() {
  report_.busy_s += output_.seconds;
  ++report_.num_steps;
  for (std::size_t i = 0; i < plan_.entries.size(); ++i)
    report_.num_computed_tokens += output_.of(plan_, i).num_computed;
  if (options_.max_drafts > 0) verify_drafts();
  scheduler_.commit(plan_, output_);
  for (std::size_t i = 0; i < plan_.entries.size(); ++i) {
    auto& live = static_cast<Live&>(*plan_.entries[i].sequence);
    if (live.num_computed < live.num_tokens()) continue;
    // The last token may end the sequence.
    for (std::int64_t left = 1 + output_.of(plan_, i).num_accepted; left > 0; --left)
      take_token(live);
  }
}

void Replica::propose_drafts() {
  if (options_.max_drafts == 0 || options_.num_states > 0) return;
  for (Sequence* sequence : scheduler_.running()) {
    auto& live = static_cast<Live&>(*sequence);
    live.drafts.clear();
    if (!live.streams() || live.num_generated() == 0 || !live.drafts_accepted.is_due(live.num_tokens())) continue;
    const std::int64_t most = std::min(live.num_left - 1, options_.max_drafts);
    live.drafts.assign(static_cast<std::size_t>(live.drafts_accepted.most(most)), output_token(live.id));
    live.draft_rate = live.drafts_accepted.rate();
  }
}

void Replica::verify_drafts() {
  if (output_.entries.empty()) output_.end_early(plan_, plan_.num_tokens);
  for (std::size_t i = 0; i < plan_.entries.size(); ++i) {
    const StepEntry& entry = plan_.entries[i];
    EntryOutput& done = output_.entries[i];
    const std::int64_t num_verified = done.num_computed - entry.num_known();
    auto& live = static_cast<Live&>(*entry.sequence);
    if (entry.num_drafts == 0 && !live.drafts.empty()) live.drafts_accepted.note_unused(live.num_tokens());
    if (entry.num_drafts == 0 || num_verified <= 0) continue;
    std::bernoulli_distribution is_right(options_.draft_acceptance);
    while (done.num_accepted < num_verified && is_right(random_))
      ++done.num_accepted;
    report_.num_draft_tokens += num_verified;
    report_.num_accepted_tokens += done.num_accepted;
    live.drafts_accepted.note(num_verified, done.num_accepted, live.num_tokens() + done.num_accepted);
  }
}

void Replica::keep_step() {
  SimStep& step = report_.steps.emplace_back(SimStep{.began_s = clock_s_, .seconds = output_.seconds, .entries = {}});
  for (std::size_t i = 0; i < plan_.entries.size(); ++i)
    step.entries.push_back({plan_.entries[i].sequence->id.value, output_.of(plan_, i).num_computed});
}

// Restores blocks under the engine's conditions.
void Replica::restore(Sequence& sequence) {
  if (!lower_tier_) return;
  const bool is_fetch = static_cast<const Live&>(sequence).stage == Stage::kAnswer;
  lower_tier_->restore(sequence.table, sequence.tokens, sequence.prefix_limit(),
                       scheduler_.most_restore_seconds(sequence), at(clock_s_), is_fetch);
}

std::int64_t Replica::move_blocks() {
  if (!lower_tier_) return 0;
  const std::uint64_t restored_before = lower_tier_->num_restored();
  for (Sequence* sequence : scheduler_.next_to_start())
    restore(*sequence);
  lower_tier_->begin_step(at(clock_s_));
  return static_cast<std::int64_t>(lower_tier_->num_restored() - restored_before);
}

void Replica::note_started(const Live& live) {
  live.share->num_tokens += live.num_prompt_tokens - live.num_cached_tokens;
  if (live.stage == Stage::kAnswer) {
    report_.num_recomputed_tokens += live.num_prompt_tokens - live.num_cached_tokens;
    return;
  }
  const std::int64_t num_blocks = kv_.blocks_for(live.num_prompt_tokens);
  report_.num_prompt_tokens += live.num_prompt_tokens;
  report_.num_cached_tokens += live.num_cached_tokens;
  report_.num_prompt_blocks += num_blocks;
  // The last prompt token is always computed, so all tokens but one cached means that the last block was found too.
  const bool all_found = live.num_cached_tokens == live.num_prompt_tokens - 1 && live.num_prompt_tokens > 1;
  report_.num_cached_blocks += all_found ? num_blocks : live.num_cached_tokens / kv_.block_size();
  report_.queue_s.add(clock_s_ - live.arrival_s);
}

void Replica::take_token(Live& live) {
  const bool is_first = live.num_generated() == 0;
  if (is_first) load_ -= live.num_prompt_tokens;
  --load_;
  --live.num_left;
  if (live.stage == Stage::kPrompt) {  // the prompt replica's token is not sent
    hold(live);
  } else {
    (is_first ? report_.ttft_s : report_.itl_s).add(clock_s_ - (is_first ? live.arrival_s : live.last_token_s));
    live.last_token_s = clock_s_;
    live.tokens.push_back(output_token(live.id));
    ++report_.num_output_tokens;
    ++live.share->num_tokens;
    if (live.num_left > 0) return;
    report_.e2e_s.add(clock_s_ - live.arrival_s);
    report_.duration_s = std::max(report_.duration_s, clock_s_);
  }
  scheduler_.finish(live);
  encoder_.remove(live);
  lives_.erase(&live);
}

// Holds the sequence's end until its prompt is published, as the engine does for another daemon's request.
void Replica::hold(Live& live) {
  Held& held = held_.emplace_back();
  held.hand_over = {.request = std::move(live.traced), .number = live.id.value};
  lower_tier_->begin_publication(held.publication, live.table, live.request->prompt, at(clock_s_));
}

void Replica::hand_over() {
  for (auto held = held_.begin(); held != held_.end();) {
    if (!lower_tier_->has_ended(held->publication, at(clock_s_))) {
      ++held;
      continue;
    }
    lower_tier_->end_publication(held->publication);
    held->hand_over.time_s = clock_s_;
    handed_.push_back(std::move(held->hand_over));
    held = held_.erase(held);
    ++report_.num_handed_over;
  }
}

std::int64_t Replica::num_tokens_cached(const std::vector<TokenId>& prompt) {
  BlockTable probe;
  kv_.open(probe, "");
  const std::int64_t found = kv_.match_tokens(kv_.match(probe, prompt, static_cast<std::int64_t>(prompt.size()) - 1));
  kv_.close(probe);
  return found;
}

}  // namespace quire::sim
