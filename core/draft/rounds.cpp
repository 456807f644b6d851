#include "core/draft/rounds.h"

#include <algorithm>
#include <exception>

#include "core/model/layers/drafted_model.h"

namespace quire {

namespace {

// Assumed acceptance of a model's drafts before any was verified: a round takes longer than looking into the text.
constexpr double kPriorOfRounds = 0.8;
// Most rows that a recurrent model may have to recompute after rejected drafts; above it, they are recomputed first.
constexpr std::int64_t kMostUnsettled = 8;

}  // namespace

// A round has at most kMostDraftedSequences: a step with more reads its weights for as many rows anyway.
DraftRounds::DraftRounds(Executor& executor, const KvCache& kv, Scheduler& scheduler, const SchedulerOptions& options,
                         std::span<const TokenId> end_of_generation)
    : executor_(executor),
      scheduler_(scheduler),
      block_size_(kv.block_size()),
      most_sequences_(std::min<std::int64_t>(kMostDraftedSequences, options.max_num_batched_tokens)),
      most_tokens_(executor.model().max_draft_context()),
      end_of_generation_(end_of_generation),
      input_(kv.block_size(), options.max_num_seqs, options.max_num_seqs * kv.blocks_for(scheduler.max_model_len())),
      likely_tokens_(executor.model().vocab_size()) {
  for (auto* sequences : {&drafted_, &in_round_})
    sequences->reserve(static_cast<std::size_t>(options.max_num_seqs));
  draws_.reserve(static_cast<std::size_t>(options.max_num_seqs));
  if (executor.model().drafts_by() == DraftsBy::kModel)
    model_rows_ = std::make_unique<DraftModelRows>(executor, kv, input_, times_);
}

void DraftRounds::begin(DraftedSequence& sequence, bool is_first_choice) {
  DraftState& drafting = sequence.drafting;
  drafting.in_rounds = true;
  drafting.acceptances.back() = DraftAcceptance(kPriorOfRounds, 1);
  if (is_first_choice) likely_tokens_.note(sequence.request->prompt);
  drafting.rows.reserve(2 * kMostDraftsOfSequence);
  drafting.rows_blocks.reserve(2 * kMostDraftsOfSequence);
}

DraftRounds::Proposed DraftRounds::propose(std::uint64_t num_passes, const TakeTurn& take_turn) {
  collect(num_passes);
  if (drafted_.empty()) return Proposed::kNothing;
  DraftBudget budget = scheduler_.draft_budget();
  times_.set_step_prices(budget.token_seconds(), budget.row_seconds());
  if (model_rows_ != nullptr) model_rows_->catch_up(drafted_, budget, acceptance_, take_turn);
  take_room();
  in_round_.assign(drafted_.begin(), drafted_.end());
  bool is_refused = false;
  for (bool is_first = true; !in_round_.empty(); is_first = false) {
    const auto num_sequences = static_cast<std::int64_t>(in_round_.size());
    double num_expected = 0.0;
    std::int64_t num_rows = 0;
    for (const DraftedSequence* sequence : in_round_) {
      num_expected += sequence->reach();
      num_rows += is_first ? sequence->num_tokens() - sequence->drafting.rows_begin : 1;
    }
    if (!budget.take(num_expected, num_sequences, times_.round_seconds(num_rows))) {
      is_refused = is_first;
      if (is_first) times_.note_refused(num_rows);
      break;
    }
    take_turn();
    if (!compute(is_first)) break;
  }
  for (DraftedSequence* sequence : drafted_)
    sequence->end_rounds(end_of_generation_);
  if (is_refused) return Proposed::kRefused;
  const auto has_drafts = [](const DraftedSequence* sequence) { return !sequence->drafts.empty(); };
  return std::ranges::any_of(drafted_, has_drafts) ? Proposed::kDrafts : Proposed::kNothing;
}

// Collects the sequences to draft for. Their first round begins at the last token's row. A next-token block needs the
// hidden state of the previous pass.
void DraftRounds::collect(std::uint64_t num_passes) {
  drafted_.clear();
  const bool by_model = model_rows_ != nullptr;
  for (Sequence* running : scheduler_.running()) {
    DraftedSequence& sequence = DraftedSequence::of(*running);
    DraftState& drafting = sequence.drafting;
    if (!drafting.in_rounds) continue;
    sequence.drafts.clear();
    if (by_model) model_rows_->settle(sequence);
    if ((!by_model && drafting.pass != num_passes) || std::ssize(drafted_) == most_sequences_) continue;
    if (sequence.num_remaining() > kMostUnsettled || !sequence.begin_rounds()) continue;
    const std::int64_t room = std::max<std::int64_t>(most_tokens_ - sequence.num_tokens(), 0);
    drafting.most_proposed = std::min(drafting.most_proposed, static_cast<std::size_t>(room));
    drafting.rows_begin = sequence.num_tokens() - 1;
    if (drafting.most_proposed > 0) drafted_.push_back(&sequence);
  }
}

// Keeps the sequences that have a block for at least a single draft.
void DraftRounds::take_room() {
  std::erase_if(drafted_, [&](DraftedSequence* sequence) {
    DraftState& drafting = sequence->drafting;
    const auto wanted = static_cast<std::int64_t>(drafting.most_proposed);
    drafting.most_proposed = static_cast<std::size_t>(scheduler_.take_room_for_drafts(*sequence, wanted));
    return drafting.most_proposed == 0;
  });
}

// False if the device or memory failed.
bool DraftRounds::compute(bool is_first) {
  const Clock::time_point began = Clock::now();
  std::size_t num_left = 0;
  try {
    input_.clear(is_first);
    draws_.clear();
    for (DraftedSequence* sequence : in_round_) {
      draws_.push_back({.logit_row = std::ssize(draws_),
                        .state = &sequence->sampler,
                        .tokens = sequence->tokens,
                        .num_prompt_tokens = sequence->num_prompt_tokens});
      const std::int64_t last = sequence->num_tokens() - 1;
      input_.add(*sequence, is_first ? sequence->drafting.rows_begin : last, sequence->drafting.hidden_row);
    }
    DraftArrays arrays = input_.arrays();
    arrays.vocabulary = likely_tokens_.ranges();
    const DraftOutput output = executor_.draft(arrays, draws_);
    if (output.has_failed) return false;
    for (std::size_t i = 0; i < in_round_.size(); ++i) {
      DraftedSequence& sequence = *in_round_[i];
      sequence.drafting.hidden_row = static_cast<std::int32_t>(i);
      if (model_rows_ != nullptr) sequence.note_round(is_first, block_size_);
      const DraftedToken& next = output.tokens[i];
      if (next.token && sequence.add_proposed(*next.token, next.is_likely, end_of_generation_))
        in_round_[num_left++] = &sequence;
    }
    const double measured = std::chrono::duration<double>(Clock::now() - began).count();
    times_.note_round(input_.num_rows(), output.seconds > 0.0 ? output.seconds : measured);
  } catch (const std::exception&) {
    return false;
  }
  in_round_.resize(num_left);
  return true;
}

void DraftRounds::note_verified(std::int64_t num_verified, std::int64_t num_accepted) {
  acceptance_.note(num_verified, num_accepted);
  times_.note_verified(num_verified, num_accepted);
}

// The hidden state before the last token is that of the row that drew it, unless a grammar forced more tokens.
void DraftRounds::note_last_row(DraftedSequence& sequence, const EntryDraws& entry, std::int64_t logit_row,
                                std::uint64_t pass) {
  if (sequence.num_tokens() != entry.end + entry.num_accepted + 1) return;
  sequence.drafting.hidden_row = static_cast<std::int32_t>(logit_row + entry.num_accepted);
  sequence.drafting.pass = pass;
}

}  // namespace quire
