#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "core/base/log.h"
#include "core/engine/engine_impl.h"

namespace quire {

namespace {

constexpr double kRateWindow = 1.0;  // seconds of work between two looks at the service rate
constexpr double kRateWeight = 0.3;  // of the newest look

template <class Bounds>
std::size_t bucket_of(const Bounds& bounds, Clock::duration time) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), std::chrono::duration<double>(time).count());
  return static_cast<std::size_t>(bucket - bounds.begin());
}

Error too_costly() {
  return {ErrorKind::kInvalidRequest,
          "The request's grammar is too ambiguous: following it would hold up other requests.",
          "grammar_too_costly",
          {},
          {}};
}

Error why_no_token(const Generation& generation, const SampleRow& row) {
  if (row.has_no_numbers)
    return {ErrorKind::kInternal, "The model computed logits that are no numbers.", "model_failed", {}, {}};
  if (generation.grammar != nullptr && generation.grammar->exhausted()) return too_costly();
  return {
      ErrorKind::kInvalidRequest, "The request's constraints leave no token to generate.", "no_token_allowed", {}, {}};
}

}  // namespace

void Engine::Impl::begin_phases() {
  step_record_.began = phase_began_ = Clock::now();
}

void Engine::Impl::end_phase(StepPhase phase) {
  const Clock::time_point now = Clock::now();
  step_record_.phases[static_cast<std::size_t>(phase)] = now - phase_began_;
  phase_began_ = now;
}

void Engine::Impl::count_step() {
  ++stats_.num_steps;
  stats_.computed_tokens += static_cast<std::uint64_t>(plan_.num_tokens);
  window_.num_tokens += static_cast<std::uint64_t>(plan_.num_tokens);
  const auto bucket = std::lower_bound(kIterationTokenBounds.begin(), kIterationTokenBounds.end(), plan_.num_tokens);
  ++stats_.iteration_tokens[static_cast<std::size_t>(bucket - kIterationTokenBounds.begin())];
}

void Engine::Impl::note_step() {
  for (std::size_t i = 0; i < kNumStepPhases; ++i) {
    const Clock::duration time = step_record_.phases[i];
    stats_.phase_ns[i] +=
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    ++stats_.phase_times[i][bucket_of(kPhaseTimeBounds, time)];
  }
  ++stats_.step_times[bucket_of(kStepTimeBounds, phase_began_ - step_record_.began)];
  if (!step_record_.entries.empty()) trace.add(std::exchange(step_record_, StepRecord{}));
}

// Before the step is committed: afterwards a sequence may be gone.
void Engine::Impl::trace_entries() {
  if (!trace.active()) return;
  step_record_.num_tokens = plan_.num_tokens;
  step_record_.entries.clear();
  for (const StepEntry& entry : plan_.entries) {
    const Sequence& sequence = *entry.sequence;
    step_record_.entries.push_back({sequence.request->id, Generation::of(*entry.sequence).choice, entry.num_tokens,
                                    sequence.num_computed < sequence.num_prompt_tokens});
  }
}

bool Engine::Impl::step(Clock::time_point now) {
  begin_phases();
  receive(now);
  move_blocks();
  StepLimits step_limits;
  if (lower_tier_ != nullptr) step_limits.swap_block_s = lower_tier_->swap_seconds();
  scheduler_.schedule(plan_, step_limits);
  if (plan_.empty()) {
    publish();
    return lower_tier_ != nullptr && lower_tier_->is_moving();
  }
  note_started(now);
  trace_entries();
  const StepTurns::Turn turn(options_.turns.get());
  end_phase(StepPhase::kSchedule);
  const Clock::time_point began = Clock::now();
  try {
    build_input();
    end_phase(StepPhase::kInput);
    forward();
    end_phase(StepPhase::kForward);
  } catch (const std::exception& error) {
    fail(error.what());
    return true;
  }
  prepare_rows();
  sampler_.sample(rows_);
  end_phase(StepPhase::kSample);
  commit(began);
  count_step();
  emit();
  window_.busy_s += std::chrono::duration<double>(Clock::now() - began).count();
  end_phase(StepPhase::kEmit);
  note_step();
  if (window_.busy_s >= kRateWindow) note_rate();
  publish();
  return true;
}

namespace {

// Everything for prompt logprobs and a mean, the first token's row for CLS, else what the sequence ends with.
WantedRows rows_wanted(const Generation& generation, const StepEntry& entry, bool is_last) {
  const Pooling pooling = generation.request->pooling;
  const auto of = pooling == Pooling::kNone ? WantedRows::Of::kLogits : WantedRows::Of::kHidden;
  const bool scores_prompt =
      !generation.prompt_logprobs.empty() && generation.num_computed < generation.num_prompt_tokens;
  if (scores_prompt || pooling == Pooling::kMean) return {of, 0, entry.num_tokens};
  if (pooling == Pooling::kCls) return {of, 0, generation.num_computed == 0 ? 1 : 0};
  return {of, entry.num_tokens - 1, is_last ? 1 : 0};
}

}  // namespace

void Engine::Impl::build_input() {
  input_.clear();
  rows_wanted_.clear();
  for (const StepEntry& entry : plan_.entries) {
    Generation& generation = Generation::of(*entry.sequence);
    const bool is_last = generation.num_computed + entry.num_tokens == generation.num_tokens();
    const WantedRows wanted = rows_wanted(generation, entry, is_last);
    const std::int64_t index = input_.add(entry, wanted, 0);
    rows_wanted_.push_back({&generation, wanted, generation.num_computed + wanted.first, index, is_last});
  }
}

void Engine::Impl::forward() {
  for (const BlockCopy& copy : plan_.transfers.copies)
    storage_->copy_block(copy.source.value, copy.destination.value);
  stats_.num_blocks_copied += plan_.transfers.copies.size();
  const ModelOutput output = model_.forward(input_.arrays(), *storage_);
  logits_ = output.logits;
  fill_masks(static_cast<std::size_t>(model_.vocab_size()));  // while the device computes
  backend_.synchronize();
  pool_hidden_states(output.hidden);
}

// Row by row in the order of positions, each once, so that chunks and preemptions do not change the sum.
void Engine::Impl::pool_hidden_states(MatrixView hidden) {
  for (const RowPlan& plan : rows_wanted_) {
    if (plan.wanted.of != WantedRows::Of::kHidden) continue;
    Generation& generation = *plan.generation;
    for (std::int64_t i = 0; i < plan.wanted.count; ++i) {
      const Pooling pooling = generation.request->pooling;
      if (plan.first_position + i < generation.num_pooled) continue;
      const float* row = hidden.data + (plan.first_index + i) * hidden.stride;
      generation.pooled.resize(static_cast<std::size_t>(hidden.cols), 0.0);
      for (std::size_t j = 0; j < generation.pooled.size(); ++j)
        generation.pooled[j] += static_cast<double>(row[j]);
      ++generation.num_pooled;
      generation.max_cached_tokens = pooling == Pooling::kMean ? generation.num_pooled : generation.num_tokens();
    }
  }
}

// Finds the rows that a token is drawn from, and what else is read from the logits before drawing overwrites them.
void Engine::Impl::prepare_rows() {
  rows_.clear();
  row_owners_.clear();
  collect_prompt_logprobs();
  const auto width = static_cast<std::size_t>(model_.vocab_size());
  const std::size_t num_words = (width + 31) / 32;
  for (std::size_t i = 0; i < rows_wanted_.size(); ++i) {
    const RowPlan& plan = rows_wanted_[i];
    if (!draws_token(plan)) continue;
    Generation& generation = *plan.generation;
    const std::span<float> logits(logits_.data + (plan.first_index + plan.wanted.count - 1) * logits_.stride, width);
    std::span<const std::uint32_t> mask;
    if (has_mask_[i]) mask = std::span(masks_).subspan(i * num_words, num_words);
    const std::int32_t num_forks = generation.live->num_unforked;
    add_sample_row(generation, logits, mask, num_forks > 0);
    for (std::int32_t choice = 1; choice <= num_forks; ++choice) {
      auto& forked = generation.live->choices[static_cast<std::size_t>(choice)];
      forked = make_generation(*generation.live, choice);
      add_sample_row(*forked, logits, mask, true);
    }
    generation.live->num_unforked = 0;
  }
}

bool Engine::Impl::draws_token(const RowPlan& plan) {
  return plan.is_last && plan.wanted.of == WantedRows::Of::kLogits && plan.generation->request->sampling.max_tokens > 0;
}

// Needs nothing of what the step computes. Choices that are about to be forked stand where their first one stands.
void Engine::Impl::fill_masks(std::size_t vocab_size) {
  const std::size_t num_words = (vocab_size + 31) / 32;
  masks_.resize(rows_wanted_.size() * num_words);
  has_mask_.assign(rows_wanted_.size(), false);
  for (std::size_t i = 0; i < rows_wanted_.size(); ++i) {
    if (!draws_token(rows_wanted_[i])) continue;
    has_mask_[i] = fill_mask(*rows_wanted_[i].generation, std::span(masks_).subspan(i * num_words, num_words));
  }
}

// A grammar's mask, or the one token that its forced text goes on with. False where nothing is forbidden.
bool Engine::Impl::fill_mask(Generation& generation, std::span<std::uint32_t> mask) {
  if (generation.grammar == nullptr) return false;
  if (!generation.forced.empty() && generation.forbids(generation.forced.back())) generation.forced.clear();
  if (generation.forced.empty()) {
    generation.grammar->fill_mask(mask);
    return true;
  }
  const auto forced = static_cast<std::uint32_t>(generation.forced.back().value);
  generation.forced.pop_back();
  std::fill(mask.begin(), mask.end(), 0U);
  mask[forced / 32] = 1U << (forced % 32);
  return true;
}

void Engine::Impl::add_sample_row(Generation& generation, std::span<float> logits, std::span<const std::uint32_t> mask,
                                  bool is_shared) {
  rows_.push_back({.logits = logits,
                   .is_shared = is_shared,
                   .state = &generation.sampler,
                   .tokens = generation.tokens,
                   .num_prompt_tokens = generation.num_prompt_tokens,
                   .mask = mask});
  row_owners_.push_back(&generation);
}

void Engine::Impl::collect_prompt_logprobs() {
  for (const RowPlan& plan : rows_wanted_) {
    Generation& generation = *plan.generation;
    if (generation.prompt_logprobs.empty()) continue;
    const Sequence& sequence = generation;
    const std::int32_t num_top = *sequence.request->sampling.num_prompt_logprobs;
    const auto known = static_cast<std::int64_t>(generation.prompt_logprobs.size());
    const std::int64_t begin = std::max(plan.first_position, known - 1);
    const std::int64_t end = std::min(plan.first_position + plan.wanted.count, sequence.num_prompt_tokens - 1);
    if (begin >= end) continue;
    generation.prompt_logprobs.resize(static_cast<std::size_t>(end) + 1);
    backend_.parallel_for(end - begin, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t position = begin + first; position < begin + last; ++position) {
        const std::int64_t index = plan.first_index + position - plan.first_position;
        const std::span<const float> logits(logits_.data + index * logits_.stride,
                                            static_cast<std::size_t>(logits_.cols));
        const auto next = static_cast<std::size_t>(position) + 1;
        generation.prompt_logprobs[next] = Sampler::logprob_of(logits, sequence.tokens[next], num_top);
      }
    });
    generation.max_cached_tokens = end;
  }
}

void Engine::Impl::commit(Clock::time_point began) {
  output_.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  scheduler_.commit(plan_, output_);
  touched_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Generation& generation = *row_owners_[i];
    if (generation.state == Sequence::State::kNew) {
      scheduler_.fork(*generation.live->choices[0], generation);
    }
  }
  for (std::size_t i = 0; i < rows_.size(); ++i)
    take_token(*row_owners_[i], rows_[i]);
  for (const RowPlan& plan : rows_wanted_) {
    if (plan.is_last && !draws_token(plan)) finish_prompt_only(*plan.generation);
  }
}

void Engine::Impl::fail(Generation& generation, Error error) {
  generation.finish = finish_info(generation, FinishReason::kError);
  generation.finish->error = std::move(error);
}

void Engine::Impl::take_token(Generation& generation, SampleRow& row) {
  touched_.push_back(&generation);
  if (!generation.first_token_at) {
    generation.first_token_at = Clock::now();
    generation.event.prompt_logprobs = std::move(generation.prompt_logprobs);
    generation.prompt_logprobs.clear();
    generation.max_chunk = generation.max_cached_tokens = Sequence::kUnbounded;
  }
  if (!row.token) return fail(generation, why_no_token(generation, row));
  append(generation, *row.token);
  if (row.logprob && !generation.event.tokens.empty()) generation.event.logprobs.push_back(*std::move(row.logprob));
  append_forced(generation);
}

// Takes one token into the sequence, and decides whether it ended the generation.
void Engine::Impl::append(Generation& generation, TokenId token) {
  Sequence& sequence = generation;
  const SamplingParams& params = sequence.request->sampling;
  ++generation.num_generated;
  ++stats_.generation_tokens;
  if (is_stop_token(generation, token)) {
    generation.finish = finish_info(generation, FinishReason::kStop);
    generation.finish->stop_token = token;
    return;
  }
  generation.event.tokens.push_back(token);
  sequence.tokens.push_back(token);
  generation.sampler.append(token);
  std::optional<FinishReason> reason;
  if (generation.grammar != nullptr) {
    const bool accepted = generation.grammar->accept(token);
    if (generation.grammar->exhausted()) return fail(generation, too_costly());
    if (!accepted || generation.grammar->finished()) reason = FinishReason::kStop;
  }
  if (!reason && generation.num_generated >= params.max_tokens) reason = FinishReason::kLength;
  if (reason) generation.finish = finish_info(generation, *reason);
}

bool Engine::Impl::is_stop_token(const Generation& generation, TokenId token) const {
  const SamplingParams& params = generation.request->sampling;
  const auto is_in = [token](const std::vector<TokenId>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  // A grammar lets the end through only where the text is complete: there it is the end, whatever ignore_eos says.
  const bool eos_ends = !params.ignore_eos || generation.grammar != nullptr;
  return (eos_ends && is_in(end_of_generation_)) || is_in(params.stop_token_ids);
}

// Where the grammar leaves one way on, the model is not asked. Where logprobs are wanted it is, but has no choice: the
// text is the same either way. A token that the request forbids is not forced: the same text may have another spelling.
void Engine::Impl::append_forced(Generation& generation) {
  if (generation.grammar == nullptr || generation.finish || !generation.forced.empty()) return;
  const std::vector<TokenId> tokens = generation.grammar->forced_tokens();
  if (generation.request->sampling.num_logprobs) {
    generation.forced.assign(tokens.rbegin(), tokens.rend());
    return;
  }
  for (const TokenId token : tokens) {
    if (generation.forbids(token)) return;
    append(generation, token);
    if (generation.finish) return;
  }
}

void Engine::Impl::finish_prompt_only(Generation& generation) {
  touched_.push_back(&generation);
  generation.event.prompt_logprobs = std::move(generation.prompt_logprobs);
  const bool embeds = generation.request->pooling != Pooling::kNone;
  generation.finish = finish_info(generation, embeds ? FinishReason::kStop : FinishReason::kLength);
  if (!embeds) return;
  // The length of a mean does not survive the norm: the sum will do.
  double square = 0.0;
  for (const double value : generation.pooled)
    square += value * value;
  const double scale = square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
  generation.event.embedding.reserve(generation.pooled.size());
  for (const double value : generation.pooled)
    generation.event.embedding.push_back(static_cast<float>(value * scale));
}

void Engine::Impl::emit() {
  for (Generation* generation : touched_) {
    if (!generation->finish) {
      generation->event.num_cached_tokens = static_cast<std::int32_t>(generation->num_cached_tokens);
      generation->live->sink->send(std::exchange(generation->event, OutputEvent{.choice = generation->choice}));
    } else if (generation->live->num_unforked > 0) {
      end_request(*generation->live, generation->finish->reason, std::nullopt);
    } else {
      end(*generation, *std::move(generation->finish));
    }
  }
}

// Nothing is known of the device's state any more: nothing more is computed on it.
void Engine::Impl::fail(const std::string& what) {
  log::error("the device failed, no more requests are served: {}", what);
  const Error error{ErrorKind::kInternal, "The device failed while computing the request.", "device_failed", {}, {}};
  healthy.store(false, std::memory_order_release);
  queue.close(error);
  scheduler_.abandon(plan_);
  cut_all(FinishReason::kError, error);
  publish();
}

void Engine::Impl::publish() {
  const BlockPool& pool = kv_.pool();
  stats_.num_running = scheduler_.num_running();
  stats_.num_waiting = scheduler_.num_waiting();
  stats_.num_blocks_used = pool.num_referenced();
  stats_.num_blocks_cached = pool.num_cached();
  stats_.num_blocks_used_peak = pool.peak_referenced();
  stats_.prefix_cache_queries = scheduler_.prefix_queries();
  stats_.prefix_cache_hits = scheduler_.prefix_hits();
  stats_.num_preemptions = scheduler_.num_preemptions();
  stats_.num_swaps = scheduler_.num_swaps();
  board.publish(stats_);
}

// Over the time in which there was work: an idle night does not make the next morning's clients wait.
void Engine::Impl::note_rate() {
  const auto blend = [&](double& rate, std::uint64_t count) {
    rate += kRateWeight * (static_cast<double>(count) / window_.busy_s - rate);
  };
  if (stats_.tokens_per_second == 0.0) {  // the first: there is nothing to blend it with
    stats_.tokens_per_second = static_cast<double>(window_.num_tokens) / window_.busy_s;
    rate_ = {static_cast<double>(window_.num_started) / window_.busy_s,
             static_cast<double>(window_.num_prompt_tokens) / window_.busy_s};
  }
  blend(stats_.tokens_per_second, window_.num_tokens);
  blend(rate_.requests_per_second, window_.num_started);
  blend(rate_.prompt_tokens_per_second, window_.num_prompt_tokens);
  window_ = {};
  queue.note_progress(rate_);
}

}  // namespace quire
