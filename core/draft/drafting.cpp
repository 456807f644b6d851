#include "core/draft/drafting.h"

#include <algorithm>
#include <utility>

#include "core/draft/prompt_lookup.h"

namespace quire {

namespace {

// Tokens that all drafters together read in one step, so that a long cached prompt does not hold it up: under 1 ms.
constexpr std::int64_t kReadInStep = 4096;
// Share of a step's time saved by submitting it before the previous step is finished, rounded up: an H100 saves 5 to 7
// % at 1 to 64 streams of an 8B model.
constexpr double kOverlapSaves = 0.08;

// Number of leading drafts, at most `num_rows`, that equal the token drawn before them or were forced.
std::int64_t num_accepted(const DraftedSequence& sequence, const EntryDraws& entry, std::int64_t num_rows,
                          std::span<const DrawnToken> drawn) {
  std::size_t draw = *entry.first;
  const std::size_t end = draw + entry.num_draws;
  std::int64_t count = 0;
  for (; count < num_rows; ++count) {
    if (sequence.is_draft_forced(count)) continue;
    if (draw == end || drawn[draw].token != sequence.drafts[static_cast<std::size_t>(count)]) break;
    ++draw;
  }
  return count;
}

}  // namespace

Drafting::Drafting(Executor& executor, const KvCache& kv, Scheduler& scheduler,
                   const SchedulerOptions& scheduler_options, DraftingOptions options,
                   std::span<const TokenId> end_of_generation)
    : model_(executor.model()),
      scheduler_(scheduler),
      has_states_(executor.states() != nullptr),
      options_(std::move(options)),
      end_of_generation_(end_of_generation),
      rounds_(executor, kv, scheduler, scheduler_options, end_of_generation) {
  if (model_.drafts_by() != DraftsBy::kNothing && !executor.can_draft())
    throw StartupError(executor.name() +
                       " does not compute a model's drafts: set speculation.method to prompt_lookup or none, and no "
                       "speculation.draft_model");
}

void Drafting::begin(DraftedSequence& sequence, std::int32_t choice) {
  const Request& request = *sequence.request;
  const SpeculationOptions speculation = request.speculation.value_or(options_.speculation);
  if (!model_.is_causal() || speculation.method == SpeculationMethod::kNone || !sequence.draws()) return;
  if (request.sampling.follows_draws()) return;  // rows of one step are drawn side by side
  DraftState& drafting = sequence.drafting;
  drafting.max_tokens = std::clamp(speculation.max_tokens, 0, kMostDraftsOfSequence);
  bool in_rounds = false;
  if (options_.make_drafter) {
    drafting.drafter = options_.make_drafter(request, choice);
  } else if (speculation.method == SpeculationMethod::kNextTokens) {
    in_rounds = model_.drafts_by() == DraftsBy::kNextTokens;
  } else if (speculation.method == SpeculationMethod::kDraftModel) {
    in_rounds = model_.drafts_by() == DraftsBy::kModel;
  } else {
    drafting.drafter = std::make_unique<PromptLookup>(sequence.most_tokens());
  }
  sequence.drafts.reserve(kMostDraftsOfSequence);
  drafting.proposed.reserve(kMostDraftsOfSequence);
  if (in_rounds) rounds_.begin(sequence, choice == 0);
}

bool Drafting::pays_to_wait() {
  if (num_passes_ < next_waiting_pass_) return false;
  std::int64_t read_budget = kReadInStep;
  double num_expected = 0.0;
  for (Sequence* sequence : scheduler_.running())
    num_expected += DraftedSequence::of(*sequence).expected_drafts(read_budget);
  return num_expected > kOverlapSaves * static_cast<double>(scheduler_.num_running());
}

// Stops waiting for drafts for a while: the step was too full to verify any.
void Drafting::stop_waiting() {
  constexpr std::uint64_t kPasses = 16;
  next_waiting_pass_ = num_passes_ + kPasses;
}

bool Drafting::propose(const TakeTurn& take_turn) {
  if (!model_.is_causal()) return false;
  const DraftRounds::Proposed in_rounds = rounds_.propose(num_passes_, take_turn);
  if (in_rounds == DraftRounds::Proposed::kRefused) stop_waiting();
  bool has_drafts = in_rounds == DraftRounds::Proposed::kDrafts;
  std::int64_t read_budget = kReadInStep;
  for (Sequence* running : scheduler_.running()) {
    DraftedSequence& sequence = DraftedSequence::of(*running);
    if (sequence.drafting.in_rounds) continue;
    // Do not draft while recomputation after a rejected draft is pending: rejected drafts would add to it.
    if (has_states_ && sequence.num_remaining() > 1) {
      sequence.drafts.clear();
      continue;
    }
    sequence.propose_drafts(read_budget, end_of_generation_);
    has_drafts = has_drafts || !sequence.drafts.empty();
  }
  return has_drafts;
}

void Drafting::note_planned(const StepPlan& plan) {
  if (plan.num_drafts == 0) stop_waiting();
  for (std::size_t i = 0; std::cmp_less(i, plan.num_streaming); ++i) {
    DraftedSequence& sequence = DraftedSequence::of(*plan.entries[i].sequence);
    if (sequence.drafts.empty() || plan.entries[i].num_drafts > 0) continue;
    sequence.drafting.acceptance().note_unused(sequence.num_tokens());
  }
}

std::uint64_t Drafting::note_submitted(const StepPlan& plan) {
  rounds_.note_plan(plan);
  return ++num_passes_;
}

// Each draft's row draws the token after it, assuming that all drafts before it are accepted: with the same random
// numbers, counts and mask. Tokens that the grammar forces are not drawn.
void Drafting::add_draws(DraftedSequence& sequence, EntryDraws& entry, StepDraws& draws) {
  if (entry.num_drafts == 0) return;
  const DrawRow first = draws.rows.back();
  const auto num_known = static_cast<std::size_t>(entry.end);
  sequence.tokens.insert(sequence.tokens.end(), sequence.drafts.begin(), sequence.drafts.begin() + entry.num_drafts);
  const std::span<const TokenId> tokens = sequence.tokens;
  draws.rows.back().tokens = tokens.first(num_known);
  if (sequence.grammar != nullptr) sequence.begin_lookahead();
  for (std::int64_t i = 0; i < entry.num_drafts; ++i) {
    if (sequence.grammar != nullptr && !sequence.look_over(sequence.drafts[static_cast<std::size_t>(i)])) return;
    if (i + 1 < entry.num_drafts && sequence.is_draft_forced(i + 1)) continue;
    DrawRow row = first;
    row.logit_row += i + 1;
    row.tokens = tokens.first(num_known + static_cast<std::size_t>(i) + 1);
    if (sequence.grammar != nullptr) {
      const std::span<std::uint32_t> mask = draws.next_mask();
      if (!sequence.fill_mask_ahead(entry.end + i + 1, mask)) return;
      row.mask = mask;
    }
    draws.rows.push_back(row);
    ++entry.num_draws;
  }
}

void Drafting::verify(DraftedSequence& sequence, EntryDraws& entry, EntryOutput& computed,
                      std::span<const DrawnToken> drawn) {
  const std::int64_t num_rows = entry.begin + computed.num_computed - entry.end;
  if (entry.num_drafts == 0 || num_rows <= 0 || !entry.first) return;
  entry.num_accepted = computed.num_accepted = num_accepted(sequence, entry, num_rows, drawn);
  note_verified(sequence, entry, num_rows);
}

void Drafting::note_verified(DraftedSequence& sequence, const EntryDraws& entry, std::int64_t num_rows) {
  ++counts_.num_verifications;
  counts_.num_verified += static_cast<std::uint64_t>(num_rows);
  counts_.num_accepted += static_cast<std::uint64_t>(entry.num_accepted);
  if (sequence.drafting.in_rounds) rounds_.note_verified(num_rows, entry.num_accepted);
  std::int64_t num_free = 0;  // drafts that were not forced
  std::int64_t num_right = 0;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const bool is_free = !sequence.is_draft_forced(i);
    num_free += is_free ? 1 : 0;
    if (i >= entry.num_accepted) continue;
    num_right += is_free ? 1 : 0;
    ++counts_.accepted_by_position[static_cast<std::size_t>(i)];
  }
  if (num_free == 0) return;
  sequence.drafting.acceptance().note(num_free, num_right, sequence.num_tokens() + entry.num_accepted);
}

void Drafting::note_token(const DraftedSequence& sequence, const DrawnToken& drawn) {
  if (sequence.drafting.in_rounds && drawn.token) rounds_.note_token(*drawn.token);
}

void Drafting::note_taken(DraftedSequence& sequence, const EntryDraws& entry, const StepDraws& draws,
                          std::uint64_t pass) {
  if (sequence.drafting.in_rounds)
    DraftRounds::note_last_row(sequence, entry, draws.rows[*entry.first].logit_row, pass);
}

}  // namespace quire
