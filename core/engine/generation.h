// Generation: one choice of a request: its sequence, sampler, grammar, and the event to be sent. LiveRequest: a request
// that has been accepted and not finished. Engine thread only. Invariant: a generation's failure, out of memory
// included, is thrown or noted here and ends that generation alone.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/thread_role.h"
#include "core/content/media_names.h"
#include "core/draft/draft_record.h"
#include "core/draft/drafter.h"
#include "core/engine/request_queue.h"
#include "core/executor/step_input.h"
#include "core/grammar/grammar.h"
#include "core/request/request.h"
#include "core/sampling/sampler.h"
#include "core/sched/sequence.h"

namespace quire {

struct LiveRequest;

// Drafting state of a generation; all of it keeps its memory from step to step.
struct Drafting {
  std::unique_ptr<Drafter> drafter;  // null: not drafted, or drafted in rounds
  bool in_rounds = false;            // a model drafts, for all sequences at once
  std::int32_t max_tokens = 0;       // in one step
  std::array<DraftRecord, kNumDraftStrengths> records{DraftRecord(0.4), DraftRecord(0.8)};
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

  bool is_on() const { return drafter != nullptr || in_rounds; }

  // Grammar state after some of the drafts, and the tokens it then forces, last first.
  std::unique_ptr<GrammarState> grammar;
  std::vector<TokenId> forced_ahead;
};

struct Generation;

// Names of the media in a generation's tokens, and its place among the generations that have media; both end with it.
struct MediaUse {
  MediaUse(MediaNames& names, std::vector<Generation*>& all, Generation& own) : held(names), users(all), user(&own) {
    users.push_back(user);
  }
  MediaUse(const MediaUse&) = delete;
  MediaUse& operator=(const MediaUse&) = delete;
  ~MediaUse() { std::erase(users, user); }

  HeldMedia held;
  std::vector<Generation*>& users;
  Generation* user;
};

struct Generation : Sequence {
  Generation(LiveRequest& owner, std::int32_t number, SamplerState sampler_state)
      : live(&owner), choice(number), sampler(std::move(sampler_state)) {
    event.choice = number;
  }

  // All sequences of the engine are generations.
  static Generation& of(Sequence& sequence) { return static_cast<Generation&>(sequence); }

  bool has_ended() const { return state == State::kDone; }
  bool draws() const { return request->pooling == Pooling::kNone && request->sampling.max_tokens > 0; }
  // The results needed from the next `num_tokens` rows. ends: they reach the sequence's last token.
  WantedRows wanted_rows(std::int64_t num_tokens, bool ends) const;
  // Fills in a grammar's mask, or that of the next forced token. False if every token is allowed.
  bool fill_mask(std::span<std::uint32_t> mask);

  // Replaces `drafts` by tokens that the request's constraints allow and that do not end the generation; none if
  // drafting does not pay now. read_budget: see Drafter::propose(). A failure here only ends drafting.
  void propose_drafts(std::int64_t& read_budget, std::span<const TokenId> end_of_generation);
  // Expected number of accepted drafts, judged by the tokens before the one that a step in flight draws; 0: no drafts.
  double expected_drafts(std::int64_t& read_budget);
  // Rounds in place of propose_drafts(). begin_rounds() returns whether the generation takes part, with at most
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
  // Masks of rows after drafts, whose tokens are in `tokens` by then: begins at the generation's grammar state, steps
  // over the next draft (false: the grammar refuses it), and fills the mask of the token after the first `num_tokens`.
  void begin_lookahead();
  bool look_over(TokenId draft);
  bool fill_mask_ahead(std::int64_t num_tokens, std::span<std::uint32_t> mask);
  // Takes drafts out of `tokens` again.
  void forget_tokens_after(std::int64_t num_kept);
  bool is_draft_forced(std::int64_t draft) const { return ((drafting.forced >> draft) & 1U) != 0; }

  // Adds hidden states of the rows from `first_position` on, in order of positions and each once, so that chunks and
  // preemptions do not change the sum.
  void add_hidden(std::span<const float> rows, std::size_t width, std::int64_t first_position);
  // Adds the logprob of the prompt's token at `position`; called in order.
  void add_prompt_logprob(std::int64_t position, std::optional<TokenLogprob> logprob);
  // Adds the logprob of the next one of the request's scored tokens.
  void add_scored_token(const std::optional<TokenLogprob>& scored);
  // Takes the drawn token and the text that the grammar forces after it, and decides whether the generation is over.
  void take(DrawnToken& drawn, std::span<const TokenId> end_of_generation);
  // Notes `num_rows` computed rows from `begin` on; returns whether prompt rows were among them, so that the next event
  // reports progress.
  bool note_progress(std::int64_t begin, std::int64_t num_rows);
  // Ends a generation that wants no more than its prompt computed.
  void finish_prompt();
  void fail(Error error) { fail(std::make_shared<const Error>(std::move(error))); }
  void fail(SharedError error) noexcept;
  FinishInfo finish_info(FinishReason reason) const;

  std::optional<MediaUse> media_use;  // absent: the prompt has no media
  LiveRequest* const live;
  const std::int32_t choice;
  SamplerState sampler;
  std::unique_ptr<GrammarState> grammar;  // null: none
  std::vector<TokenId> forced;            // tokens to be sampled next, last first, if the model is asked for them
  Drafting drafting;
  OutputEvent event;                 // event that this step will send
  std::optional<FinishInfo> finish;  // decided, not yet sent
  std::int32_t pending_place = 0;    // place of the pending token among the previous step's draws

  // Logprobs of the prompt's tokens, if requested.
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;
  // Sum of the hidden states so far, the chosen one, all of them, or the requested logprobs.
  std::vector<double> pooled;
  std::int64_t num_pooled = 0;  // rows

  std::int32_t num_generated = 0;  // a stop token included
  std::optional<Clock::time_point> first_token_at;

 private:
  double pooled_scale(std::span<const double> vector) const;
  void append(TokenId token, std::span<const TokenId> end_of_generation);
  void append_forced(std::span<const TokenId> end_of_generation);
  bool is_stop_token(TokenId token, std::span<const TokenId> end_of_generation) const;
  bool forbids(TokenId token) const;
  bool can_draft() const;
  bool has_due_record() const;
  std::int64_t most_drafts() const;
  bool draws_forced() const { return request->sampling.num_logprobs.has_value(); }
  void keep_allowed_drafts(std::size_t most, std::span<const TokenId> end_of_generation);
  bool keep_draft(TokenId token, std::span<const TokenId> end_of_generation);
  Error why_no_token(const DrawnToken& drawn) const;
};

// Fills a mask that allows a single token.
void allow_only(TokenId token, std::span<std::uint32_t> mask);
// Calls `work`, which returns a Result<void>. Returns its error or exception, or `no_memory` if memory is
// exhausted.
template <class Work>
SharedError attempt(const SharedError& no_memory, const Work& work) noexcept QUIRE_REQUIRES(kEngineThread) {
  try {
    try {
      Result<void> done = work();
      return done ? nullptr : std::make_shared<const Error>(std::move(done.error()));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return std::make_shared<const Error>(Error{ErrorKind::kInternal, error.what(), "request_failed", {}, {}});
    }
  } catch (...) {
    return no_memory;
  }
}

struct LiveRequest {
  std::shared_ptr<const Request> request;
  std::shared_ptr<OutputSink> sink;
  QueueTicket ticket;
  std::uint64_t seed = 0;
  std::vector<std::unique_ptr<Generation>>
      choices;  // [0] from the start, the others once the prompt is computed; null: ended
  std::int32_t num_ended = 0;
  std::int32_t num_unforked = 0;  // choices that begin once the first one's prompt is computed
  std::optional<Clock::time_point> started_at;
  std::optional<Clock::time_point> queue_deadline;  // absent once it has started
  SharedError no_memory;                            // made in advance, while there is memory
};

// Calls `work`, which belongs to the generation: an exception ends this generation.
template <class Work>
void guarded(Generation& generation, const Work& work) noexcept QUIRE_REQUIRES(kEngineThread) {
  SharedError error = attempt(generation.live->no_memory, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
    work();
    return {};
  });
  if (error != nullptr) generation.fail(std::move(error));
}

}  // namespace quire
