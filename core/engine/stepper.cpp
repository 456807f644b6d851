#include "core/engine/stepper.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "core/base/log.h"
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

// Fills step.parts and the arrays of the step's rows.
void add_rows(Step& step) {
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
}

void add_scores(Step& step, StepPart& part) {
  const Generation& generation = *part.generation;
  std::vector<ScoreRow>& scores = step.draws.scores;
  if (!generation.prompt_logprobs.empty()) {
    const auto num_known = static_cast<std::int64_t>(generation.prompt_logprobs.size());
    const std::int64_t begin = std::max(part.entry.begin, num_known - 1);
    const std::int64_t end = std::min(part.entry.end, generation.num_prompt_tokens - 1);
    part.first_score = scores.size();
    for (std::int64_t position = begin; position < end; ++position) {
      scores.push_back({part.first_index + position - part.entry.begin,
                        generation.tokens[static_cast<std::size_t>(position) + 1],
                        *generation.request->sampling.num_prompt_logprobs});
      ++part.num_scores;
    }
  }
  if (part.is_last && part.wanted.of == WantedRows::Of::kLogits && !generation.request->scored_tokens.empty()) {
    part.first_score = scores.size();
    for (const TokenId token : generation.request->scored_tokens)
      scores.push_back({part.first_index + part.wanted.count - 1, token, 0});
    part.num_scores = generation.request->scored_tokens.size();
  }
}

// Adds a draw of the token after the last known one.
void add_draw(Step& step, StepPart& part, std::int64_t logit_row) {
  Generation& generation = *part.generation;
  DrawRow row{.logit_row = logit_row,
              .state = &generation.sampler,
              .tokens = generation.tokens,
              .num_prompt_tokens = generation.num_prompt_tokens};
  if (generation.grammar != nullptr) {
    const std::span<std::uint32_t> mask = step.draws.next_mask();
    if (generation.fill_mask(mask)) row.mask = mask;
  }
  part.entry.first = step.draws.rows.size();
  part.entry.num_draws = 1;
  step.draws.rows.push_back(row);
  generation.pending_place = static_cast<std::int32_t>(step.draws.rows.size() - 1);
  // The last token of a generation is never computed.
  generation.num_pending = generation.num_generated + 1 < generation.request->sampling.max_tokens ? 1 : 0;
}

// Removes the draft tokens that Drafting::add_draws() appended.
void forget_drafts(Step& step) {
  for (const StepPart& part : step.parts) {
    if (part.entry.num_drafts > 0) part.generation->forget_tokens_after(part.entry.end);
  }
}

// Waits for a step in flight after the device failed. `known`: the failure that is already reported.
void wait_in_vain(Step& step, const std::string& known) QUIRE_REQUIRES(kEngineThread) {
  try {
    step.ticket->wait();
  } catch (const std::exception& error) {
    if (error.what() != known) log::error("the device failed in the next step too: {}", error.what());
  }
}

}  // namespace

Stepper::Stepper(EngineParts& parts, Requests& requests, RequestQueue& queue, StepTrace& trace, EngineView& view,
                 std::function<void()> publish)
    : parts_(parts),
      requests_(requests),
      queue_(queue),
      trace_(trace),
      view_(view),
      publish_(std::move(publish)),
      turns_(parts.options.turns.get(), &queue_.interrupt()) {}

bool Stepper::finish_for_drafts() {
  Step* const in_flight = parts_.steps.latest;
  if (in_flight == nullptr || !parts_.drafting.pays_to_wait()) return false;
  finish(*in_flight);
  return true;
}

bool Stepper::plan(Step& step, Clock::time_point now, Turn& turn) {
  meter_.begin(step.record);
  parts_.tiers.begin_step(now);
  requests_.send_held(now);
  const StepLimits bounds = limits(step, turn);
  parts_.scheduler.schedule(step.plan, bounds);
  if (bounds.takes_drafts) parts_.drafting.note_planned(step.plan);
  parts_.tiers.take_moves(step.plan.transfers.moves);
  const bool streams = step.plan.num_streaming > 0;
  turns_.note_work(!step.plan.empty(), streams ? parts_.options.scheduler.target_itl_ms / 1000.0 : 0.0);
  awaits_others_ = parts_.tiers.is_restoring();  // take_turn() follows if there is something to compute
  const bool has_work = step.plan.has_work();
  if (has_work) note_planned(step, now);
  const Step* const before = parts_.steps.latest;
  if (has_work || before != nullptr) predicted_s_ = longest_prediction(before, has_work ? &step : nullptr);
  return has_work;
}

// The limits of the next plan. Proposes drafts first, for which it may compute rounds.
StepLimits Stepper::limits(Step& step, Turn& turn) {
  const bool is_in_flight = parts_.steps.latest != nullptr;
  Executor& executor = *parts_.executor;
  StepLimits limits;
  limits.swap_block_s = parts_.tiers.swap_seconds();
  limits.max_seconds = turns_.longest_step();
  if (parts_.media.place(is_in_flight))
    limits.max_seconds = std::min(limits.max_seconds, parts_.media.share().most_of_model());
  limits.is_awaited = turns_.is_awaited();
  // A recurrent state cannot be undone, so a step with states is computed whole.
  limits.can_end_early = executor.depth() == 1 && executor.states() == nullptr && executor.model().is_causal();
  const auto own_turn = [&]() QUIRE_REQUIRES(kEngineThread) {
    if (!turn) take_turn(step, turn);
  };
  limits.takes_drafts = !is_in_flight && parts_.drafting.propose(std::ref(own_turn));
  return limits;
}

void Stepper::note_planned(Step& step, Clock::time_point now) {
  requests_.note_started(step.plan, now);
  for (const Sequence* sequence : step.plan.started)
    meter_.note_started(sequence->num_prompt_tokens);
  num_blocks_copied_ += step.plan.transfers.copies.size();
  step.record.num_tokens = step.plan.num_tokens;
  step.record.num_sequences = static_cast<std::int64_t>(step.plan.entries.size());
  step.record.num_prompt_tokens = prompt_tokens(step.plan);
  trace_.note_entries(step.record, step.plan);
  meter_.end_phase(step.record, StepPhase::kSchedule);
}

void Stepper::take_turn(Step& step, Turn& turn) {
  awaits_others_ = parts_.options.turns != nullptr && !turn;
  publish_();
  if (turn) return;
  meter_.end_phase(step.record, StepPhase::kSchedule);
  turn.emplace(turns_);
  if (std::exchange(awaits_others_, false)) publish_();
  meter_.end_phase(step.record, StepPhase::kTurn);
}

void Stepper::run(Step* before, Step* next) {
  const bool is_submitted = next != nullptr && submit(*next);
  if (before != nullptr) finish(*before);
  if (!is_submitted) return;
  draw(*next);
  if (!next->is_overlapped) finish(*next);
}

// False if the host ran out of memory: the step is dropped, and its requests end with that error.
bool Stepper::submit(Step& step) {
  meter_.note_submitted(step.record);
  step.pass = parts_.drafting.note_submitted(step.plan);
  add_rows(step);
  StepArrays arrays = step.input.arrays(parts_.executor->model().positions_per_row());
  arrays.slice_rows = step.plan.slice_tokens;
  arrays.cuts_slices = step.plan.cuts_slices;
  if (step.plan.interruptible && parts_.executor->depth() == 1) arrays.interrupt = &queue_.interrupt();
  meter_.end_phase(step.record, StepPhase::kInput);
  const SharedError error = attempt(parts_.no_memory, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
    step.ticket = &parts_.executor->submit(step.plan, arrays);
    return {};
  });
  if (error != nullptr) {
    drop(step, error);
    return false;
  }
  step.is_overlapped = parts_.executor->depth() > 1 && step.plan.num_drafts == 0;
  parts_.steps.latest = &step;
  // Commits before the results exist, and before the previous step is finished, which may end sequences. Steps are
  // computed in order, so the next one finds the rows.
  if (step.is_overlapped) parts_.scheduler.commit(step.plan, {});
  meter_.end_phase(step.record, StepPhase::kForward);
  return true;
}

// Ends a step whose moves and copies are done, without computing its rows.
void Stepper::drop(Step& step, const SharedError& error) {
  parts_.tiers.finish_moves(step.plan.transfers.moves, {});
  forget_drafts(step);
  parts_.scheduler.abandon(step.plan);
  Step* const in_flight = std::exchange(parts_.steps.latest, &step);
  for (StepPart& part : step.parts) {
    part.generation->fail(error);
    part.has_news = true;
  }
  emit(step);
  parts_.steps.latest = in_flight;
  if (in_flight != nullptr) std::ranges::move(step.ended, std::back_inserter(in_flight->ended));
  step.parts.clear();
  step.ended.clear();
}

// Called when the tokens before the drawn ones are known. Skips generations that ended since the submission, or
// continue with forced text.
void Stepper::draw(Step& step) {
  step.draws.clear();
  for (std::size_t i = 0; i < step.plan.entries.size(); ++i) {
    Generation& generation = *step.parts[i].generation;
    if (!generation.has_ended()) guarded(generation, [&]() QUIRE_REQUIRES(kEngineThread) { add_draws(step, i); });
  }
  step.ticket->draw(step.draws.batch());
  meter_.end_phase(step.record, StepPhase::kSample);
}

void Stepper::add_draws(Step& step, std::size_t index) {
  StepPart& part = step.parts[index];
  Generation& generation = *part.generation;
  add_scores(step, part);
  if (!part.is_last || !generation.draws() || part.entry.end != generation.num_tokens()) return;
  add_draw(step, part, part.first_index + part.wanted.count - 1 - part.entry.num_drafts);
  parts_.drafting.add_draws(generation, part.entry, step.draws);
  if (generation.live->num_unforked > 0) add_forks(step, index);
}

// Forks the request's other choices at the end of the prompt; each draws from the same logits. The first choice does
// not continue before: it would write into a block that they share.
void Stepper::add_forks(Step& step, std::size_t parent) {
  LiveRequest& live = *step.parts[parent].generation->live;
  const std::int64_t logit_row = step.draws.rows.back().logit_row;
  const std::span others = std::span(live.choices).subspan(1);
  try {
    for (std::size_t i = 0; i < others.size(); ++i)
      others[i] = requests_.make_generation(live, static_cast<std::int32_t>(i) + 1);
  } catch (...) {
    std::fill(others.begin(), others.end(), nullptr);
    throw;
  }
  live.num_unforked = 0;
  step.parts[parent].generation->num_pending = 0;
  for (const auto& forked : others) {
    const std::int64_t end = step.parts[parent].entry.end;
    step.parts.push_back({.generation = forked.get(), .entry = {.begin = end, .end = end}, .forked_from = parent});
    guarded(*forked, [&]() QUIRE_REQUIRES(kEngineThread) { add_draw(step, step.parts.back(), logit_row); });
  }
}

void Stepper::finish(Step& step) {
  StepOutput& output = wait(step);
  meter_.end_phase(step.record, StepPhase::kSample);
  const double measured = meter_.note_done(step.record);
  parts_.tiers.finish_moves(step.plan.transfers.moves, output.moved);
  if (output.seconds == 0.0) output.seconds = measured - output.moved.offload_s - output.moved.load_s;
  if (!step.plan.empty()) finish_entries(step, output);
  parts_.drafting.note_step(output.seconds);
  if (parts_.steps.latest == &step) parts_.steps.latest = nullptr;
  ++num_plans_;
  step.plan.clear();
  step.parts.clear();
  step.ended.clear();
}

StepOutput& Stepper::wait(Step& step) {
  try {
    return step.ticket->wait();
  } catch (const DeviceError& error) {
    forget_drafts(step);
    if (parts_.steps.latest != &step) wait_in_vain(*parts_.steps.latest, error.what());
    throw;
  }
}

void Stepper::finish_entries(Step& step, StepOutput& output) {
  forget_drafts(step);
  if (step.plan.num_drafts > 0) verify_drafts(step, output);
  if (step.is_overlapped) {
    parts_.scheduler.observe(step.plan, output.seconds);
  } else {
    parts_.scheduler.commit(step.plan, output);
  }
  commit(step, output);
  emit(step);
  meter_.end_phase(step.record, StepPhase::kEmit);
  if (const auto rate = meter_.finish(step.record)) queue_.note_progress(*rate);
  view_.add_step(meter_.summary(step.record));
  step.record.terms = step.plan.terms;
  // The step's time as streams saw it, block moves included.
  const double moved_s = output.moved.offload_s + output.moved.load_s;
  step.record.seconds = output.cut_slice ? 0.0 : output.seconds + moved_s;
  if (!step.record.entries.empty()) trace_.add(step.record);
}

void Stepper::commit(Step& step, StepOutput& output) {
  std::int64_t num_tokens = 0;
  std::int64_t num_generated = 0;
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
    num_generated += generation.num_generated - num_before;
    part.has_news = part.has_news || generation.finish.has_value();
  }
  meter_.count(num_tokens, num_generated);
}

void Stepper::commit_part(const Step& step, StepPart& part, std::int64_t num_computed, StepOutput& output) {
  Generation& generation = *part.generation;
  if (generation.finish) return;  // its draw failed
  if (generation.request->reports_progress) part.has_news = generation.note_progress(part.entry.begin, num_computed);
  if (part.wanted.of != WantedRows::Of::kLogits) take_hidden(part, num_computed, output);
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

void Stepper::take_hidden(const StepPart& part, std::int64_t num_computed, const StepOutput& output) {
  const bool labels = part.wanted.of == WantedRows::Of::kLabels;
  const Model& model = parts_.executor->model();
  const auto width = static_cast<std::size_t>(labels ? model.num_labels() : model.hidden_size());
  const std::span<const float> values = labels ? output.labels : output.hidden;
  const auto num_rows =
      static_cast<std::size_t>(std::clamp<std::int64_t>(num_computed - part.wanted.first, 0, part.wanted.count));
  part.generation->add_hidden(values.subspan(static_cast<std::size_t>(part.first_index) * width, num_rows * width),
                              width, part.entry.begin + part.wanted.first);
}

// False if the step ended before the prompt's end: a later step forks the choice.
bool Stepper::fork(Step& step, const StepPart& part) {
  Generation& child = *part.generation;
  Generation& parent = *step.parts[*part.forked_from].generation;
  if (!part.is_complete) {
    LiveRequest& live = *child.live;
    live.choices[static_cast<std::size_t>(child.choice)].reset();
    ++live.num_unforked;
    return false;
  }
  guarded(child, [&]() QUIRE_REQUIRES(kEngineThread) { parts_.scheduler.fork(parent, child); });
  return true;
}

void Stepper::emit(const Step& step) {
  for (const StepPart& part : step.parts) {
    if (!part.has_news || part.generation->has_ended()) continue;
    Generation& generation = *part.generation;
    if (!generation.finish) {
      generation.event.num_cached_tokens = static_cast<std::int32_t>(generation.num_cached_tokens);
      generation.live->sink->send(std::exchange(generation.event, OutputEvent{.choice = generation.choice}));
    } else if (generation.live->num_unforked > 0) {
      requests_.end(*generation.live, generation.finish->reason, generation.finish->error);
    } else {
      requests_.end(generation, *std::move(generation.finish));
    }
  }
}

void Stepper::verify_drafts(Step& step, StepOutput& output) {
  if (output.entries.empty()) output.end_early(step.plan, step.plan.num_tokens);
  for (std::size_t i = 0; i < step.plan.entries.size(); ++i) {
    StepPart& part = step.parts[i];
    parts_.drafting.verify(*part.generation, part.entry, output.entries[i], output.tokens);
  }
}

// Takes the token after the last known one, and one after each accepted draft. Tokens that the grammar forces in
// between were appended before.
void Stepper::take_draws(const Step& step, const StepPart& part, StepOutput& output) {
  Generation& generation = *part.generation;
  const EntryDraws& entry = part.entry;
  std::size_t draw = *entry.first;
  const std::size_t end = draw + entry.num_draws;
  for (std::int64_t i = 0; i <= entry.num_accepted && draw < end && !generation.finish; ++i) {
    if (i < entry.num_drafts && generation.is_draft_forced(i)) continue;
    if (generation.num_tokens() != entry.end + i) break;
    parts_.drafting.note_token(generation, output.tokens[draw]);
    generation.take(output.tokens[draw++], parts_.end_of_generation);
  }
  parts_.drafting.note_taken(generation, entry, step.draws, step.pass);
  // A grammar that failed on its text may have forced fewer tokens than its drafts had.
  const std::int64_t most_computed = generation.num_tokens() - (generation.finish ? 0 : 1);
  if (entry.num_drafts > 0) generation.num_computed = std::min(generation.num_computed, most_computed);
}

void Stepper::abandon() {
  for (Step& step : parts_.steps.both)
    parts_.scheduler.abandon(step.plan);
}

void Stepper::report(EngineStats& stats) const {
  meter_.report(stats);
  stats.awaits_others = awaits_others_ ? 1 : 0;
  stats.predicted_step_s = predicted_s_;
  stats.num_plans = num_plans_;
  stats.num_blocks_copied = num_blocks_copied_;
}

}  // namespace quire
