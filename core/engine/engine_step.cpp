#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

#include "core/base/log.h"
#include "core/engine/engine_impl.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

// Number of prompt rows that are computed for the first time.
std::int64_t prompt_tokens(const StepPlan& plan) {
  std::int64_t count = 0;
  for (const StepEntry& entry : plan.entries) {
    const std::int64_t left = entry.sequence->num_prompt_tokens - entry.sequence->num_computed;
    count += std::clamp<std::int64_t>(left, 0, entry.num_tokens);
  }
  return count;
}

// Longest prediction of the steps in flight; 0 if a prediction is unknown.
double longest_prediction(const Step* before, const Step* next) {
  double longest = 0.0;
  for (const Step* step : {before, next}) {
    if (step == nullptr) continue;
    if (step->plan.predicted_seconds == 0.0) return 0.0;
    longest = std::max(longest, step->plan.predicted_seconds);
  }
  return longest;
}

}  // namespace

// With depth 1, a step is planned, submitted, drawn and finished. With depth 2, it is submitted before the previous
// step is finished, and drawn after: its masks are made while the device computes. A step with drafts is alone in
// flight.
bool Engine::Impl::step(Clock::time_point now) {
  receive(now);
  Step* before = std::exchange(in_flight_, nullptr);
  Step& next = steps_[before == steps_.data() ? 1 : 0];
  const bool is_settled = before != nullptr && drafting_.pays_to_wait();
  if (is_settled && !finish(*std::exchange(before, nullptr))) {
    publish();
    return true;
  }
  Turn turn;
  const bool has_next = plan(next, now, turn);
  if (!has_next && before == nullptr) {
    if (const auto media = media_.place(false)) {
      take_turn(next, turn);
      encode(media, media_.encoder_seconds(next.plan));
      publish();
      return true;
    }
    stats_.awaits_others = tiers_.is_restoring() ? 1 : 0;
    publish();
    return is_settled || tiers_.is_moving() || slots_.has_order();
  }
  stats_.predicted_step_s = longest_prediction(before, has_next ? &next : nullptr);
  take_turn(next, turn);
  const double encoder_s = media_.encoder_seconds(next.plan);
  const bool is_submitted = has_next && submit(next);
  const bool works = before == nullptr || finish(*before);
  if (works && is_submitted) draw(next);
  if (works && is_submitted && next.is_overlapped) in_flight_ = &next;
  if (works && is_submitted && !next.is_overlapped) finish(next);
  if (works) encode(media_.place(latest_ != nullptr), encoder_s);
  publish();
  return true;
}

// Takes the turn once for a step and the drafting rounds before it.
void Engine::Impl::take_turn(Step& step, Turn& turn) {
  stats_.awaits_others = options_.turns != nullptr && !turn ? 1 : 0;
  publish();
  if (turn) return;
  meter_.end_phase(step.record, StepPhase::kSchedule);
  turn.emplace(turns_);
  if (std::exchange(stats_.awaits_others, 0) != 0) publish();
  meter_.end_phase(step.record, StepPhase::kTurn);
}

// Requests that wait for a piece that could not be encoded end with an error.
void Engine::Impl::encode(const std::optional<PromptMedia::Wanted>& media, double seconds) {
  const PromptMedia::Failed failed = media_.encode(media, seconds);
  for (LiveRequest* live : failed.requests)
    end_request(*live, FinishReason::kError, failed.error);
}

bool Engine::Impl::plan(Step& step, Clock::time_point now, Turn& turn) {
  meter_.begin(step.record);
  tiers_.begin_step(now);
  held_ends_.send(now);
  StepLimits step_limits;
  step_limits.swap_block_s = tiers_.swap_seconds();
  step_limits.max_seconds = turns_.room();
  if (media_.place(latest_ != nullptr))
    step_limits.max_seconds = std::min(step_limits.max_seconds, media_.most_step_seconds());
  step_limits.is_awaited = turns_.is_awaited();
  // A recurrent state cannot go back: it must not run ahead of the committed tokens.
  step_limits.can_end_early =
      executor_->depth() == 1 && executor_->states() == nullptr && executor_->model().is_causal();
  const auto own_turn = [&]() QUIRE_REQUIRES(kEngineThread) {
    if (!turn) take_turn(step, turn);
  };
  step_limits.takes_drafts = latest_ == nullptr && drafting_.propose(std::ref(own_turn));
  scheduler_.schedule(step.plan, step_limits);
  if (step_limits.takes_drafts) drafting_.note_planned(step.plan);
  tiers_.take_moves(step.plan.transfers.moves);
  const bool streams = step.plan.num_streaming > 0;
  turns_.note_work(!step.plan.empty(), streams ? options_.scheduler.target_itl_ms / 1000.0 : 0.0);
  if (!step.plan.has_work()) return false;
  note_started(step.plan, now);
  stats_.num_blocks_copied += step.plan.transfers.copies.size();
  step.record.num_tokens = step.plan.num_tokens;
  step.record.num_sequences = static_cast<std::int64_t>(step.plan.entries.size());
  step.record.num_prompt_tokens = prompt_tokens(step.plan);
  trace.note_entries(step.record, step.plan);
  meter_.end_phase(step.record, StepPhase::kSchedule);
  return true;
}

// False if the host ran out of memory: the step is dropped and its requests have ended with that error.
bool Engine::Impl::submit(Step& step) {
  meter_.note_submitted(step.record);
  step.pass = drafting_.note_submitted(step.plan);
  step.input.clear();
  step.parts.clear();
  for (const StepEntry& entry : step.plan.entries) {
    Generation& generation = Generation::of(*entry.sequence);
    StepPart part{.generation = &generation, .entry = {.begin = generation.num_computed}};
    part.entry.end = part.entry.begin + entry.num_known();
    part.entry.num_drafts = entry.num_drafts;
    part.is_last = entry.num_known() == generation.num_remaining();
    part.wanted = generation.wanted_rows(entry.num_known(), part.is_last);
    part.wanted.count += entry.num_drafts;
    part.first_index = step.input.add(entry, part.wanted, generation.pending_place);
    step.parts.push_back(part);
  }
  StepArrays arrays = step.input.arrays(executor_->model().positions_per_row());
  arrays.slice_rows = step.plan.slice_tokens;
  arrays.cuts_slices = step.plan.cuts_slices;
  if (step.plan.interruptible && executor_->depth() == 1) arrays.interrupt = &queue.interrupt();
  meter_.end_phase(step.record, StepPhase::kInput);
  const SharedError error = attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
    step.ticket = &executor_->submit(step.plan, arrays);
    return {};
  });
  if (error != nullptr) {
    end_step(step, error);
    return false;
  }
  // Sequences may end while the previous step is finished, so this one is committed before that.
  step.is_overlapped = executor_->depth() > 1 && step.plan.num_drafts == 0;
  latest_ = &step;
  // Steps are computed in order: results that the next step relies on exist by the time it is computed.
  if (step.is_overlapped) scheduler_.commit(step.plan, {});
  meter_.end_phase(step.record, StepPhase::kForward);
  return true;
}

// Ends a step whose rows will never be computed; its moves and copies are done.
void Engine::Impl::end_step(Step& step, const SharedError& error) {
  tiers_.finish_moves(step.plan.transfers.moves, {});
  forget_drafts(step);
  scheduler_.abandon(step.plan);
  Step* const in_flight = std::exchange(latest_, &step);
  for (StepPart& part : step.parts) {
    part.generation->fail(error);
    part.has_news = true;
  }
  emit(step);
  latest_ = in_flight;
  if (in_flight != nullptr) std::ranges::move(step.ended, std::back_inserter(in_flight->ended));
  step.parts.clear();
  step.ended.clear();
}

// The tokens before the drawn ones are known by now. A generation that ended since the submission, or continues with
// forced text, needs no token.
void Engine::Impl::draw(Step& step) {
  step.draws.clear();
  for (std::size_t i = 0; i < step.plan.entries.size(); ++i) {
    Generation& generation = *step.parts[i].generation;
    if (!generation.has_ended()) guarded(generation, [&]() QUIRE_REQUIRES(kEngineThread) { add_draws(step, i); });
  }
  step.ticket->draw(step.draws.batch());
  meter_.end_phase(step.record, StepPhase::kSample);
}

void Engine::Impl::add_draws(Step& step, std::size_t index) {
  StepPart& part = step.parts[index];
  Generation& generation = *part.generation;
  if (!generation.prompt_logprobs.empty()) {
    const auto num_known = static_cast<std::int64_t>(generation.prompt_logprobs.size());
    const std::int64_t begin = std::max(part.entry.begin, num_known - 1);
    const std::int64_t end = std::min(part.entry.end, generation.num_prompt_tokens - 1);
    part.first_score = step.draws.scores.size();
    for (std::int64_t position = begin; position < end; ++position) {
      step.draws.scores.push_back({part.first_index + position - part.entry.begin,
                                   generation.tokens[static_cast<std::size_t>(position) + 1],
                                   *generation.request->sampling.num_prompt_logprobs});
      ++part.num_scores;
    }
  }
  if (part.is_last && part.wanted.of == WantedRows::Of::kLogits && !generation.request->scored_tokens.empty()) {
    part.first_score = step.draws.scores.size();
    for (const TokenId token : generation.request->scored_tokens)
      step.draws.scores.push_back({part.first_index + part.wanted.count - 1, token, 0});
    part.num_scores = generation.request->scored_tokens.size();
  }
  if (!part.is_last || !generation.draws() || part.entry.end != generation.num_tokens()) return;
  add_draw(step, index, part.first_index + part.wanted.count - 1 - part.entry.num_drafts);
  drafting_.add_draws(generation, part.entry, step.draws);
  if (generation.live->num_unforked > 0) add_forks(step, index);
}

// The request's other choices start at the end of its prompt, each with a draw of its own from the same logits. The
// first choice waits until they are forked: it would write into a block that they are about to share.
void Engine::Impl::add_forks(Step& step, std::size_t parent) {
  LiveRequest& live = *step.parts[parent].generation->live;
  const std::int64_t logit_row = step.draws.rows.back().logit_row;
  const std::span others = std::span(live.choices).subspan(1);
  try {
    for (std::size_t i = 0; i < others.size(); ++i)
      others[i] = make_generation(live, static_cast<std::int32_t>(i) + 1);
  } catch (...) {
    std::fill(others.begin(), others.end(), nullptr);
    throw;
  }
  live.num_unforked = 0;
  step.parts[parent].generation->num_pending = 0;
  for (const auto& forked : others) {
    const std::int64_t end = step.parts[parent].entry.end;
    step.parts.push_back({.generation = forked.get(), .entry = {.begin = end, .end = end}, .forked_from = parent});
    guarded(*forked, [&]() QUIRE_REQUIRES(kEngineThread) { add_draw(step, step.parts.size() - 1, logit_row); });
  }
}

void Engine::Impl::add_draw(Step& step, std::size_t part, std::int64_t logit_row) {
  Generation& generation = *step.parts[part].generation;
  DrawRow row{.logit_row = logit_row,
              .state = &generation.sampler,
              .tokens = generation.tokens,
              .num_prompt_tokens = generation.num_prompt_tokens};
  if (generation.grammar != nullptr) {
    const std::span<std::uint32_t> mask = step.draws.next_mask();
    if (generation.fill_mask(mask)) row.mask = mask;
  }
  EntryDraws& entry = step.parts[part].entry;
  entry.first = step.draws.rows.size();
  entry.num_draws = 1;
  step.draws.rows.push_back(row);
  generation.pending_place = static_cast<std::int32_t>(step.draws.rows.size() - 1);
  // The last token of a generation is never computed.
  generation.num_pending = generation.num_generated + 1 < generation.request->sampling.max_tokens ? 1 : 0;
}

// False if the device has failed.
bool Engine::Impl::finish(Step& step) {
  StepOutput* output = nullptr;
  try {
    output = &step.ticket->wait();
  } catch (const DeviceError& error) {
    forget_drafts(step);
    if (latest_ != &step) wait_in_vain(*latest_, error.what());
    device_failed(error.what());
    return false;
  }
  meter_.end_phase(step.record, StepPhase::kSample);
  const double measured = meter_.note_done(step.record);
  tiers_.finish_moves(step.plan.transfers.moves, output->moved);
  if (output->seconds == 0.0) output->seconds = measured - output->moved.offload_s - output->moved.load_s;
  if (!step.plan.empty()) finish_entries(step, *output);
  drafting_.note_step(output->seconds);
  if (latest_ == &step) latest_ = nullptr;
  ++stats_.num_plans;
  step.plan.clear();
  step.parts.clear();
  step.ended.clear();
  return true;
}

void Engine::Impl::finish_entries(Step& step, StepOutput& output) {
  forget_drafts(step);
  if (step.plan.num_drafts > 0) verify_drafts(step, output);
  if (step.is_overlapped) {
    scheduler_.observe(step.plan, output.seconds);
  } else {
    scheduler_.commit(step.plan, output);
  }
  commit(step, output);
  emit(step);
  meter_.end_phase(step.record, StepPhase::kEmit);
  if (const auto rate = meter_.finish(stats_, step.record)) queue.note_progress(*rate);
  view.add_step(meter_.summary(step.record));
  step.record.terms = step.plan.terms;
  // The step's time as streams saw it, block moves included.
  const double moved_s = output.moved.offload_s + output.moved.load_s;
  step.record.seconds = output.cut_slice ? 0.0 : output.seconds + moved_s;
  if (!step.record.entries.empty()) trace.add(step.record);
}

void Engine::Impl::commit(Step& step, StepOutput& output) {
  std::int64_t num_tokens = 0;
  for (std::size_t i = 0; i < step.parts.size(); ++i) {
    StepPart& part = step.parts[i];
    const std::int64_t num_computed = part.forked_from ? 0 : output.of(step.plan, i).num_computed;
    num_tokens += num_computed;
    part.is_complete = part.forked_from ? step.parts[*part.forked_from].is_complete
                                        : part.entry.begin + num_computed >= part.entry.end;
    Generation& generation = *part.generation;
    if (generation.has_ended() || (part.forked_from && !fork(step, part))) continue;
    generation.num_pending = 0;
    const std::int32_t num_before = generation.num_generated;
    guarded(generation, [&]() QUIRE_REQUIRES(kEngineThread) { commit_part(step, part, num_computed, output); });
    stats_.generation_tokens += static_cast<std::uint64_t>(generation.num_generated - num_before);
    part.has_news = part.has_news || generation.finish.has_value();
  }
  meter_.count(stats_, num_tokens);
}

void Engine::Impl::commit_part(const Step& step, StepPart& part, std::int64_t num_computed, StepOutput& output) {
  Generation& generation = *part.generation;
  if (generation.finish) return;  // it failed when the draw was made
  if (generation.request->reports_progress) part.has_news = generation.note_progress(part.entry.begin, num_computed);
  if (part.wanted.of != WantedRows::Of::kLogits) {
    const bool labels = part.wanted.of == WantedRows::Of::kLabels;
    const Model& model = executor_->model();
    const auto width = static_cast<std::size_t>(labels ? model.num_labels() : model.hidden_size());
    const std::span<const float> values = labels ? output.labels : output.hidden;
    const auto num_rows =
        static_cast<std::size_t>(std::clamp<std::int64_t>(num_computed - part.wanted.first, 0, part.wanted.count));
    generation.add_hidden(values.subspan(static_cast<std::size_t>(part.first_index) * width, num_rows * width), width,
                          part.entry.begin + part.wanted.first);
  }
  const bool scores_tokens = generation.request->pooling != Pooling::kNone;
  for (std::size_t i = 0; i < part.num_scores && !generation.finish; ++i) {
    if (scores_tokens) {
      if (part.is_complete) generation.add_scored_token(output.take_logprob(part.first_score + i));
      continue;
    }
    const auto position = static_cast<std::int64_t>(generation.prompt_logprobs.size());
    if (position > part.entry.begin + num_computed) return;
    generation.add_prompt_logprob(position, output.take_logprob(part.first_score + i));
  }
  if (!part.is_complete || generation.finish) return;
  if (part.entry.first) {
    take_draws(step, part, output);
    part.has_news = true;
  } else if (part.is_last && !generation.draws()) {
    generation.finish_prompt();
  }
}

// False if the end of the prompt was not computed after all: the choice is forked in another step.
bool Engine::Impl::fork(Step& step, const StepPart& part) {
  Generation& child = *part.generation;
  Generation& parent = *step.parts[*part.forked_from].generation;
  if (!part.is_complete) {
    LiveRequest& live = *child.live;
    live.choices[static_cast<std::size_t>(child.choice)].reset();
    ++live.num_unforked;
    return false;
  }
  guarded(child, [&]() QUIRE_REQUIRES(kEngineThread) { scheduler_.fork(parent, child); });
  return true;
}

void Engine::Impl::emit(const Step& step) {
  for (const StepPart& part : step.parts) {
    if (!part.has_news || part.generation->has_ended()) continue;
    Generation& generation = *part.generation;
    if (!generation.finish) {
      generation.event.num_cached_tokens = static_cast<std::int32_t>(generation.num_cached_tokens);
      generation.live->sink->send(std::exchange(generation.event, OutputEvent{.choice = generation.choice}));
    } else if (generation.live->num_unforked > 0) {
      end_request(*generation.live, generation.finish->reason, generation.finish->error);
    } else {
      end(generation, *std::move(generation.finish));
    }
  }
}

// Removes the draft tokens that Drafting::add_draws() appended.
void Engine::Impl::forget_drafts(Step& step) {
  for (const StepPart& part : step.parts) {
    if (part.entry.num_drafts > 0) part.generation->forget_tokens_after(part.entry.end);
  }
}

void Engine::Impl::verify_drafts(Step& step, StepOutput& output) {
  if (output.entries.empty()) {
    for (const StepEntry& entry : step.plan.entries)
      output.entries.push_back({entry.num_tokens});
  }
  for (std::size_t i = 0; i < step.plan.entries.size(); ++i) {
    StepPart& part = step.parts[i];
    drafting_.verify(*part.generation, part.entry, output.entries[i], output.tokens);
  }
}

// Takes the token after the last known one, and a token after each accepted draft; tokens that the grammar forces in
// between are already appended by then.
void Engine::Impl::take_draws(const Step& step, const StepPart& part, StepOutput& output) {
  Generation& generation = *part.generation;
  const EntryDraws& entry = part.entry;
  std::size_t draw = *entry.first;
  const std::size_t end = draw + entry.num_draws;
  for (std::int64_t i = 0; i <= entry.num_accepted && draw < end && !generation.finish; ++i) {
    if (i < entry.num_drafts && generation.is_draft_forced(i)) continue;
    if (generation.num_tokens() != entry.end + i) break;
    drafting_.note_token(generation, output.tokens[draw]);
    generation.take(output.tokens[draw++], end_of_generation_);
  }
  drafting_.note_taken(generation, entry, step.draws, step.pass);
  // A grammar that failed on its text may have forced fewer tokens than its drafts had.
  const std::int64_t most_computed = generation.num_tokens() - (generation.finish ? 0 : 1);
  if (entry.num_drafts > 0) generation.num_computed = std::min(generation.num_computed, most_computed);
}

// Waits for a step after the device failed. `known`: the failure already reported.
void Engine::Impl::wait_in_vain(Step& step, const std::string& known) {
  try {
    step.ticket->wait();
  } catch (const std::exception& error) {
    if (error.what() != known) log::error("the device failed in the next step too: {}", error.what());
  }
}

// The device's state is unknown: nothing more is computed on it.
void Engine::Impl::device_failed(const std::string& what) {
  log::error("the device failed, no more requests are served: {}", what);
  for (Step& step : steps_)
    scheduler_.abandon(step.plan);
  refuse_all("The device failed while computing the request.", "device_failed");
  latest_ = nullptr;
}

// Every request, present or future, ends with the error.
void Engine::Impl::refuse_all(const char* message, const char* code) {
  const SharedError error = attempt(no_memory_, [&] { return failure(ErrorKind::kInternal, message, code); });
  healthy.store(false, std::memory_order_release);
  queue.close(error);
  cut_all(FinishReason::kError, error);
  slots_.refuse(*error);
  publish();
}

}  // namespace quire
