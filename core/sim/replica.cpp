#include "core/sim/replica.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace quire::sim {

namespace {

// Generated text is like nothing else: a token that no prompt has, by request.
TokenId output_token(SequenceId id) {
  return TokenId{static_cast<std::int32_t>(-1 - id.value)};
}

Clock::time_point at(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace

Replica::Replica(const SimOptions& options, std::int64_t num_blocks, SimReport& report)
    : options_(options),
      report_(report),
      kv_(num_blocks, options.block_size, options.prefix_caching),
      storage_({.num_layers = 1, .num_blocks = num_blocks, .block_size = options.block_size}),
      tier_(options.tier_blocks * options.block_size * static_cast<std::int64_t>(sizeof(TokenId))),
      scheduler_(options.scheduler, kv_) {
  if (options.tier_blocks == 0) return;
  lower_tier_.emplace(kv_, storage_, nullptr, &tier_, nullptr);
  lower_tier_->set_swap_seconds(options.tier_block_ms / 1000.0);
}

void Replica::arrive(const TraceRequest& request, std::int64_t number) {
  clock_s_ = scheduler_.idle() ? std::max(clock_s_, request.arrival_s) : clock_s_;
  auto live = std::make_unique<Live>();
  auto asked = std::make_shared<Request>();
  asked->prompt = prompt_tokens(request, number);
  asked->sampling.max_tokens = request.num_output_tokens;
  asked->key_name = request.key;
  asked->arrival = at(request.arrival_s);
  if (!scheduler_.check(*asked)) {
    ++report_.num_refused;
    return;
  }
  live->id = SequenceId{number};
  live->tokens = asked->prompt;
  live->num_prompt_tokens = request.num_prompt_tokens;
  live->request = std::move(asked);
  live->arrival_s = request.arrival_s;
  live->num_left = request.num_output_tokens;
  live->share = &report_.keys[request.key];
  ++live->share->num_requests;
  ++report_.num_requests;
  load_ += request.num_prompt_tokens + request.num_output_tokens;
  scheduler_.add(*live);
  const Live* const address = live.get();
  lives_.emplace(address, std::move(live));
}

void Replica::run_until(double time_s) {
  while (clock_s_ < time_s && !scheduler_.idle())
    step();
}

void Replica::run_to_end() {
  run_until(std::numeric_limits<double>::infinity());
}

void Replica::step() {
  const std::uint64_t preemptions_before = scheduler_.num_preemptions();
  const std::uint64_t swaps_before = scheduler_.num_swaps();
  const std::int64_t num_restored = restore();
  StepLimits limits;
  if (lower_tier_) limits.swap_block_s = lower_tier_->swap_seconds();
  scheduler_.schedule(plan_, limits);
  for (const Sequence* sequence : plan_.started)
    note_started(static_cast<const Live&>(*sequence));
  const double seconds = price(plan_) + static_cast<double>(num_restored) * options_.tier_block_ms / 1000.0;
  clock_s_ += seconds;
  report_.busy_s += seconds;
  scheduler_.commit(plan_, {.seconds = seconds});
  ++report_.num_steps;
  report_.num_computed_tokens += plan_.num_tokens;
  report_.num_preemptions += static_cast<std::int64_t>(scheduler_.num_preemptions() - preemptions_before);
  report_.num_swaps += static_cast<std::int64_t>(scheduler_.num_swaps() - swaps_before);
  report_.num_restored_blocks += num_restored;
  for (const StepEntry& entry : plan_.entries) {
    if (entry.sequence->num_remaining() == 0) take_token(static_cast<Live&>(*entry.sequence));
  }
}

// As the engine does: what the next to start finds in the tier below comes back before it is planned.
std::int64_t Replica::restore() {
  if (!lower_tier_) return 0;
  const double of_token = options_.scheduler.preemption == Preemption::kSwap ? 0.0 : scheduler_.prompt_token_seconds();
  const std::uint64_t restored_before = lower_tier_->num_restored();
  for (Sequence* sequence : scheduler_.next_to_start())
    lower_tier_->restore(sequence->table, sequence->tokens, sequence->prefix_limit(), of_token);
  lower_tier_->begin_step();
  return static_cast<std::int64_t>(lower_tier_->num_restored() - restored_before);
}

double Replica::price(const StepPlan& plan) const {
  const StepPrice& price = options_.price;
  std::int64_t context = 0;
  double prompt_context = 0.0;  // of each prompt token, summed
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const Sequence* const sequence = plan.entries[i].sequence;
    const std::int64_t num_tokens = plan.entries[i].num_tokens;
    if (std::cmp_less(i, plan.num_streaming)) {
      context += sequence->num_computed;
    } else {
      const double before = static_cast<double>(sequence->num_computed) + 0.5 * static_cast<double>(num_tokens);
      prompt_context += static_cast<double>(num_tokens) * before;
    }
  }
  const double ms = price.base_ms + price.stream_ms * static_cast<double>(plan.num_streaming) +
                    price.prompt_token_ms * static_cast<double>(plan.num_prompt_tokens) +
                    price.context_ktoken_ms * static_cast<double>(context) / 1000.0 +
                    price.prompt_context_ms * prompt_context / 1000.0;
  return ms / 1000.0;
}

void Replica::note_started(const Live& live) {
  const std::int64_t num_blocks = kv_.blocks_for(live.num_prompt_tokens);
  report_.num_prompt_tokens += live.num_prompt_tokens;
  report_.num_cached_tokens += live.num_cached_tokens;
  report_.num_prompt_blocks += num_blocks;
  // A prompt's last token is always computed: all but it means that its last block was found too.
  const bool all_found = live.num_cached_tokens == live.num_prompt_tokens - 1 && live.num_prompt_tokens > 1;
  report_.num_cached_blocks += all_found ? num_blocks : live.num_cached_tokens / kv_.block_size();
  report_.queue_s.add(clock_s_ - live.arrival_s);
  live.share->num_tokens += live.num_prompt_tokens - live.num_cached_tokens;
}

void Replica::take_token(Live& live) {
  if (live.num_generated() == 0) {
    report_.ttft_s.add(clock_s_ - live.arrival_s);
    load_ -= live.num_prompt_tokens;
  } else {
    report_.itl_s.add(clock_s_ - live.last_token_s);
  }
  live.last_token_s = clock_s_;
  live.tokens.push_back(output_token(live.id));
  ++report_.num_output_tokens;
  ++live.share->num_tokens;
  --load_;
  if (--live.num_left > 0) return;
  report_.e2e_s.add(clock_s_ - live.arrival_s);
  report_.duration_s = std::max(report_.duration_s, clock_s_);
  scheduler_.finish(live);
  lives_.erase(&live);
}

std::int64_t Replica::num_tokens_cached(const std::vector<TokenId>& prompt) {
  BlockTable probe;
  kv_.open(probe, "");
  const std::int64_t found = kv_.match_tokens(kv_.match(probe, prompt, static_cast<std::int64_t>(prompt.size()) - 1));
  kv_.close(probe);
  return found;
}

}  // namespace quire::sim
