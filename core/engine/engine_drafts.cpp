#include <algorithm>

#include "core/draft/prompt_lookup.h"
#include "core/engine/engine_impl.h"

namespace quire {

namespace {

// Tokens that all drafters together read in one step, so that a long cached prompt does not hold it up: under 1 ms.
constexpr std::int64_t kReadInStep = 4096;
// Assumed acceptance of a model's drafts before any was verified: a round takes longer than looking into the text.
constexpr double kPriorOfRounds = 0.8;
// Share of a step's time saved by submitting it before the previous step is finished, rounded up: an H100 saves 5 to 7
// % at 1 to 64 streams of an 8B model.
constexpr double kOverlapSaves = 0.08;

}  // namespace

// Whether the step in flight is finished before the next one is planned, because drafts need the token that it draws.
// Finishing first pays if the expected accepted drafts exceed the tokens lost by giving up the overlap.
bool Engine::Impl::settles_for_drafts() {
  if (num_passes_ < next_settled_pass_) return false;
  std::int64_t read_budget = kReadInStep;
  double num_expected = 0.0;
  for (Sequence* sequence : scheduler_.running())
    num_expected += Generation::of(*sequence).expected_drafts(read_budget);
  return num_expected > kOverlapSaves * static_cast<double>(scheduler_.num_running());
}

// Stops waiting for drafts for a while: the step was too full to verify any.
void Engine::Impl::stop_settling() {
  constexpr std::uint64_t kPasses = 16;
  next_settled_pass_ = num_passes_ + kPasses;
}

void Engine::Impl::begin_drafting(Generation& generation) {
  const Request& request = *generation.request;
  const SpeculationOptions speculation = request.speculation.value_or(options_.speculation);
  if (speculation.method == SpeculationMethod::kNone || !generation.draws()) return;
  if (request.sampling.follows_draws()) return;  // rows of one step are drawn side by side
  Drafting& drafting = generation.drafting;
  drafting.max_tokens = std::clamp(speculation.max_tokens, 0, kMostDraftsOfSequence);
  if (options_.make_drafter) {
    drafting.drafter = options_.make_drafter(request, generation.choice);
  } else if (speculation.method == SpeculationMethod::kNextTokens) {
    drafting.in_rounds = executor_->model().drafts_by() == DraftsBy::kNextTokens;
  } else if (speculation.method == SpeculationMethod::kDraftModel) {
    drafting.in_rounds = executor_->model().drafts_by() == DraftsBy::kModel;
  } else {
    drafting.drafter = std::make_unique<PromptLookup>(generation.most_tokens());
  }
  generation.drafts.reserve(kMostDraftsOfSequence);
  drafting.proposed.reserve(kMostDraftsOfSequence);
  if (!drafting.in_rounds) return;
  drafting.records.back() = DraftRecord(kPriorOfRounds, 1);
  if (generation.choice == 0) likely_tokens_.note(request.prompt);
  drafting.rows.reserve(2 * kMostDraftsOfSequence);
  drafting.rows_blocks.reserve(2 * kMostDraftsOfSequence);
}

// False if there are no drafts, for example while a step is in flight, whose tokens are not known.
bool Engine::Impl::propose_drafts(Step& step, Turn& turn) {
  if (!executor_->model().is_causal() || latest_ != nullptr) return false;
  std::int64_t read_budget = kReadInStep;
  bool has_drafts = propose_in_rounds(step, turn);
  for (Sequence* sequence : scheduler_.running()) {
    if (Generation::of(*sequence).drafting.in_rounds) continue;
    // Do not draft while recomputation after a rejected draft is pending: rejected drafts would add to it.
    if (executor_->states() != nullptr && sequence->num_remaining() > 1) {
      sequence->drafts.clear();
      continue;
    }
    Generation::of(*sequence).propose_drafts(read_budget, end_of_generation_);
    has_drafts = has_drafts || !sequence->drafts.empty();
  }
  return has_drafts;
}

// Notes drafts that the step had no room to verify: making them and waiting for their tokens costs time.
void Engine::Impl::note_unused_drafts(const StepPlan& plan) {
  if (plan.num_drafts == 0) stop_settling();
  for (std::size_t i = 0; std::cmp_less(i, plan.num_streaming); ++i) {
    Generation& generation = Generation::of(*plan.entries[i].sequence);
    if (generation.drafts.empty() || plan.entries[i].num_drafts > 0) continue;
    generation.drafting.records[static_cast<std::size_t>(generation.drafting.strength)].note_unused(
        generation.num_tokens());
  }
}

// Each draft's row draws the token after it, assuming that all drafts before it are accepted: with the same random
// numbers, counts and mask. Tokens that the grammar forces are not drawn.
void Engine::Impl::add_draft_draws(Step& step, std::size_t index) {
  StepPart& part = step.parts[index];
  Generation& generation = *part.generation;
  const DrawRow first = step.draws.back();
  generation.tokens.insert(generation.tokens.end(), generation.drafts.begin(),
                           generation.drafts.begin() + part.num_drafts);
  const std::span<const TokenId> tokens = generation.tokens;
  step.draws.back().tokens = tokens.first(static_cast<std::size_t>(part.end));
  if (generation.grammar != nullptr) generation.begin_lookahead();
  for (std::int64_t i = 0; i < part.num_drafts; ++i) {
    if (generation.grammar != nullptr && !generation.look_over(generation.drafts[static_cast<std::size_t>(i)])) return;
    if (i + 1 < part.num_drafts && generation.is_draft_forced(i + 1)) continue;
    DrawRow row = first;
    row.logit_row += i + 1;
    row.tokens = tokens.first(static_cast<std::size_t>(part.end + i + 1));
    if (generation.grammar != nullptr) {
      const std::span<std::uint32_t> mask = next_mask(step);
      if (!generation.fill_mask_ahead(part.end + i + 1, mask)) return;
      row.mask = mask;
    }
    step.draws.push_back(row);
    ++part.num_draws;
  }
}

// Removes the draft tokens that add_draft_draws() appended.
void Engine::Impl::forget_drafts(Step& step) {
  for (const StepPart& part : step.parts) {
    if (part.num_drafts > 0) part.generation->forget_tokens_after(part.end);
  }
}

void Engine::Impl::verify_drafts(Step& step, StepOutput& output) {
  if (output.entries.empty()) {
    for (const StepEntry& entry : step.plan.entries)
      output.entries.push_back({entry.num_tokens});
  }
  for (std::size_t i = 0; i < step.plan.entries.size(); ++i) {
    StepPart& part = step.parts[i];
    const std::int64_t num_rows = part.begin + output.entries[i].num_computed - part.end;
    if (part.num_drafts == 0 || num_rows <= 0 || !part.draw) continue;
    part.num_accepted = num_accepted(part, num_rows, output);
    output.entries[i].num_accepted = part.num_accepted;
    note_verified(part, num_rows);
  }
}

// Number of leading drafts, at most `num_rows`, that equal the token drawn before them or were forced.
std::int64_t Engine::Impl::num_accepted(const StepPart& part, std::int64_t num_rows, const StepOutput& output) const {
  const Generation& generation = *part.generation;
  std::size_t draw = *part.draw;
  const std::size_t end = draw + part.num_draws;
  std::int64_t count = 0;
  for (; count < num_rows; ++count) {
    if (generation.is_draft_forced(count)) continue;
    if (draw == end || output.tokens[draw].token != generation.drafts[static_cast<std::size_t>(count)]) break;
    ++draw;
  }
  return count;
}

void Engine::Impl::note_verified(const StepPart& part, std::int64_t num_rows) {
  Generation& generation = *part.generation;
  ++stats_.num_drafts;
  stats_.num_draft_tokens += static_cast<std::uint64_t>(num_rows);
  stats_.num_accepted_tokens += static_cast<std::uint64_t>(part.num_accepted);
  if (generation.drafting.in_rounds) {
    catch_up_.note_verified(num_rows, part.num_accepted);
    catch_up_.note_drafts(static_cast<double>(part.num_accepted) * token_seconds_,
                          static_cast<double>(num_rows) * row_seconds_);
  }
  std::int64_t num_free = 0;  // drafts that were not forced
  std::int64_t num_right = 0;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const bool is_free = !generation.is_draft_forced(i);
    num_free += is_free ? 1 : 0;
    if (i >= part.num_accepted) continue;
    num_right += is_free ? 1 : 0;
    ++stats_.accepted_by_position[static_cast<std::size_t>(i)];
  }
  if (num_free == 0) return;
  generation.drafting.records[static_cast<std::size_t>(generation.drafting.strength)].note(
      num_free, num_right, generation.num_tokens() + part.num_accepted);
}

// Takes the token after the last known one, and a token after each accepted draft; tokens that the grammar forces in
// between are already appended by then.
void Engine::Impl::take_draws(const Step& step, const StepPart& part, StepOutput& output) {
  Generation& generation = *part.generation;
  std::size_t draw = *part.draw;
  const std::size_t end = draw + part.num_draws;
  for (std::int64_t i = 0; i <= part.num_accepted && draw < end && !generation.finish; ++i) {
    if (i < part.num_drafts && generation.is_draft_forced(i)) continue;
    if (generation.num_tokens() != part.end + i) break;
    if (generation.drafting.in_rounds && output.tokens[draw].token) likely_tokens_.note(*output.tokens[draw].token);
    generation.take(output.tokens[draw++], end_of_generation_);
  }
  note_hidden_row(step, part);
  // A grammar that failed on its text may have forced fewer tokens than its drafts had.
  const std::int64_t most_computed = generation.num_tokens() - (generation.finish ? 0 : 1);
  if (part.num_drafts > 0) generation.num_computed = std::min(generation.num_computed, most_computed);
}

}  // namespace quire
