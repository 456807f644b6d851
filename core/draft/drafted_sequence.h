// DraftedSequence: a sequence with the constraints on its next tokens (sampler, grammar, ends), and its drafts:
// proposed tokens that the constraints allow and a step verifies. Engine thread only. Invariants: a failure while
// drafts are proposed ends the sequence's drafting alone; `tokens` holds drafts only while a proposal or a verification
// works.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/draft/acceptance.h"
#include "core/draft/drafter.h"
#include "core/grammar/grammar.h"
#include "core/request/request.h"
#include "core/sampling/sampler.h"
#include "core/sched/sequence.h"

namespace quire {

// Drafting state of a sequence; all of it keeps its memory from step to step.
struct DraftState {
  std::unique_ptr<Drafter> drafter;  // null: not drafted, or drafted in rounds
  bool in_rounds = false;            // a model drafts, for all sequences at once
  std::int32_t max_tokens = 0;       // in one step
  std::array<DraftAcceptance, kNumDraftStrengths> acceptances{DraftAcceptance(0.4), DraftAcceptance(0.8)};
  DraftStrength strength = DraftStrength::kWeak;  // strength of the current drafts
  std::uint32_t forced = 0;                       // bit i: the grammar forces draft i after those before it
  std::vector<TokenId> proposed;

  // Drafting rounds: row of the hidden state before the last token, in the pass of that number or, within a step, in
  // the previous round.
  std::int32_t hidden_row = -1;
  std::uint64_t pass = 0;
  std::size_t most_proposed = 0;

  // rows_begin: next row that the drafting model computes; rows: the tokens it assumed there in earlier rounds, some of
  // which may have been rejected since.
  std::int64_t rows_begin = 0;
  std::vector<TokenId> rows;
  std::vector<BlockId> rows_blocks;   // blocks of these rows, from the first row's on
  std::int32_t rows_preemptions = 0;  // num_preemptions when they were computed
  bool is_catching_up = false;        // some of the missing rows are computed, not all

  // Grammar state after some of the drafts, and the tokens it then forces, last first.
  std::unique_ptr<GrammarState> grammar;
  std::vector<TokenId> forced_ahead;

  bool is_on() const { return drafter != nullptr || in_rounds; }
  DraftAcceptance& acceptance() { return acceptances[static_cast<std::size_t>(strength)]; }
};

struct DraftedSequence : Sequence {
  explicit DraftedSequence(SamplerState sampler_state) : sampler(std::move(sampler_state)) {}

  // All sequences of the engine are drafted sequences.
  static DraftedSequence& of(Sequence& sequence) { return static_cast<DraftedSequence&>(sequence); }

  bool draws() const { return request->pooling == Pooling::kNone && request->sampling.max_tokens > 0; }
  bool is_stop_token(TokenId token, std::span<const TokenId> end_of_generation) const;
  // Whether the request forbids `token` here, independent of model and grammar.
  bool forbids(TokenId token) const;
  // Whether tokens that the grammar forces are drawn all the same, for their logprobs.
  bool draws_forced() const { return request->sampling.num_logprobs.has_value(); }

  // Replaces `drafts` by tokens that the request's constraints allow and that do not end the generation; none if
  // drafting does not pay now. read_budget: see Drafter::propose().
  void propose_drafts(std::int64_t& read_budget, std::span<const TokenId> end_of_generation);
  // Expected number of accepted drafts, judged by the tokens before the one that a step in flight draws; 0: no drafts.
  double expected_drafts(std::int64_t& read_budget);
  // Rounds in place of propose_drafts(). begin_rounds() returns whether the sequence takes part, with at most
  // most_proposed drafts; each round proposes one token, and add_proposed() returns whether it takes part in the next
  // round.
  bool begin_rounds();
  bool add_proposed(TokenId token, bool is_likely, std::span<const TokenId> end_of_generation);
  void end_rounds(std::span<const TokenId> end_of_generation);
  // Notes that the drafting model computed the rows from drafting.rows_begin on, after the first round only the last
  // one.
  void note_round(bool is_first, std::int64_t block_size);
  // Probability that all proposed drafts and the next one are accepted.
  double reach() const;
  // Masks of rows after drafts, whose tokens are in `tokens` by then: begins at the sequence's grammar state, steps
  // over the next draft (false: the grammar refuses it), and fills the mask of the token after the first `num_tokens`.
  void begin_lookahead();
  bool look_over(TokenId draft);
  bool fill_mask_ahead(std::int64_t num_tokens, std::span<std::uint32_t> mask);
  // Takes drafts out of `tokens` again.
  void forget_tokens_after(std::int64_t num_kept);
  bool is_draft_forced(std::int64_t draft) const { return ((drafting.forced >> draft) & 1U) != 0; }

  SamplerState sampler;
  std::unique_ptr<GrammarState> grammar;  // null: none
  std::vector<TokenId> forced;            // tokens to be sampled next, last first, if the model is asked for them
  std::int32_t num_generated = 0;         // a stop token included
  DraftState drafting;

 private:
  bool can_draft() const;
  bool has_due_drafts() const;
  std::int64_t most_drafts() const;
  void keep_allowed_drafts(std::size_t most, std::span<const TokenId> end_of_generation);
  bool keep_draft(TokenId token, std::span<const TokenId> end_of_generation);
};

// Fills a mask that allows a single token.
void allow_only(TokenId token, std::span<std::uint32_t> mask);

}  // namespace quire
