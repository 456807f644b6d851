// Drafts that a model makes: rounds between two steps, one token for each sequence that takes part.
#include <algorithm>
#include <chrono>

#include "core/engine/engine_impl.h"
#include "core/model/layers/drafted_model.h"

namespace quire {

namespace {

// Most rows that a recurrent model may have to recompute after rejected drafts; above it, they are recomputed first.
constexpr std::int64_t kMostUnsettled = 8;
// Largest number of sequences in a round: with more, the step reads its weights for as many rows anyway.
constexpr std::int64_t kMostInRound = kMostDraftedSequences;

}  // namespace

// Collects the sequences to draft for. Their first round begins at the last token's row. A next-token block needs the
// hidden state of the previous pass.
void Engine::Impl::begin_rounds() {
  drafted_.clear();
  const bool by_model = drafted_rows_ != nullptr;
  const std::int64_t most_tokens = executor_->model().max_draft_context();
  const std::int64_t most = std::min<std::int64_t>(kMostInRound, options_.scheduler.max_num_batched_tokens);
  for (Sequence* sequence : scheduler_.running()) {
    Generation& generation = Generation::of(*sequence);
    Drafting& drafting = generation.drafting;
    if (!drafting.in_rounds) continue;
    sequence->drafts.clear();
    if (by_model) settle_rows(generation);
    if ((!by_model && drafting.pass != num_passes_) || std::ssize(drafted_) == most) continue;
    if (sequence->num_remaining() > kMostUnsettled || !generation.begin_rounds()) continue;
    const std::int64_t room = std::max<std::int64_t>(most_tokens - sequence->num_tokens(), 0);
    drafting.most_proposed = std::min(drafting.most_proposed, static_cast<std::size_t>(room));
    drafting.rows_begin = sequence->num_tokens() - 1;
    if (drafting.most_proposed > 0) drafted_.push_back(&generation);
  }
}

// Keeps the sequences that have a block for at least a single draft.
void Engine::Impl::take_room_for_rounds() {
  std::erase_if(drafted_, [&](Generation* generation) QUIRE_REQUIRES(kEngineThread) {
    Drafting& drafting = generation->drafting;
    const auto wanted = static_cast<std::int64_t>(drafting.most_proposed);
    drafting.most_proposed = static_cast<std::size_t>(scheduler_.take_room_for_drafts(*generation, wanted));
    return drafting.most_proposed == 0;
  });
}

bool Engine::Impl::propose_in_rounds(Step& step, Turn& turn) {
  begin_rounds();
  if (drafted_.empty()) return false;
  DraftBudget budget = scheduler_.draft_budget();
  token_seconds_ = budget.token_seconds();
  row_seconds_ = budget.row_seconds();
  if (drafted_rows_ != nullptr) catch_up(budget, step, turn);
  take_room_for_rounds();
  in_round_.assign(drafted_.begin(), drafted_.end());
  for (bool is_first = true; !in_round_.empty(); is_first = false) {
    const auto num_sequences = static_cast<std::int64_t>(in_round_.size());
    double num_expected = 0.0;
    std::int64_t num_rows = 0;
    for (const Generation* generation : in_round_) {
      num_expected += generation->reach();
      num_rows += is_first ? generation->num_tokens() - generation->drafting.rows_begin : 1;
    }
    if (!budget.take(num_expected, num_sequences, draft_price_.seconds(num_rows))) {
      if (is_first) {
        draft_price_.note_refused(num_rows);
        stop_settling();
      }
      break;
    }
    if (!turn) take_turn(step, turn);
    bool works = false;
    const SharedError error = attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
      works = draft_round(is_first);
      return {};
    });
    if (!works || error != nullptr) break;
  }
  for (Generation* generation : drafted_)
    generation->end_rounds(end_of_generation_);
  return std::ranges::any_of(drafted_, [](const Generation* generation) { return !generation->drafts.empty(); });
}

// False if the device failed.
bool Engine::Impl::draft_round(bool is_first) {
  const Clock::time_point began = Clock::now();
  draft_input_.clear(is_first);
  draft_draws_.clear();
  for (Generation* generation : in_round_) {
    draft_draws_.push_back({.logit_row = std::ssize(draft_draws_),
                            .state = &generation->sampler,
                            .tokens = generation->tokens,
                            .num_prompt_tokens = generation->num_prompt_tokens});
    const std::int64_t last = generation->num_tokens() - 1;
    draft_input_.add(*generation, is_first ? generation->drafting.rows_begin : last, generation->drafting.hidden_row);
  }
  DraftArrays arrays = draft_input_.arrays();
  arrays.vocabulary = likely_tokens_.ranges();
  const DraftOutput output = executor_->draft(arrays, draft_draws_);
  if (output.has_failed) return false;
  std::size_t num_left = 0;
  for (std::size_t i = 0; i < in_round_.size(); ++i) {
    Generation& generation = *in_round_[i];
    generation.drafting.hidden_row = static_cast<std::int32_t>(i);
    if (drafted_rows_ != nullptr) generation.note_round(is_first, kv_.block_size());
    const DraftedToken& next = output.tokens[i];
    if (next.token && generation.add_proposed(*next.token, next.is_likely, end_of_generation_))
      in_round_[num_left++] = &generation;
  }
  const double measured = std::chrono::duration<double>(Clock::now() - began).count();
  const double seconds = output.seconds > 0.0 ? output.seconds : measured;
  draft_price_.observe(draft_input_.num_rows(), seconds);
  catch_up_.note_drafts(0.0, seconds);
  in_round_.resize(num_left);
  return true;
}

// The hidden state before the last token is that of the row that drew it, unless a grammar forced more tokens.
void Engine::Impl::note_hidden_row(const Step& step, const StepPart& part) {
  Generation& generation = *part.generation;
  if (!generation.drafting.in_rounds || generation.num_tokens() != part.end + part.num_accepted + 1) return;
  generation.drafting.hidden_row = static_cast<std::int32_t>(step.draws[*part.draw].logit_row + part.num_accepted);
  generation.drafting.pass = step.pass;
}

}  // namespace quire
