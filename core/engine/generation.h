// Generation: one choice of a request: its sequence, and the event to be sent. LiveRequest: a request that has been
// accepted and not finished. Engine thread only. Invariant: a generation's failure, out of memory included, is thrown
// or noted here and ends that generation alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/thread_role.h"
#include "core/content/media_names.h"
#include "core/draft/drafted_sequence.h"
#include "core/engine/request_queue.h"
#include "core/executor/step_input.h"
#include "core/request/request.h"

namespace quire {

struct Generation;
struct LiveRequest;

// The names of the media in a generation's tokens, and its place among the generations with media. Its destructor
// releases both.
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

struct Generation : DraftedSequence {
  Generation(LiveRequest& owner, std::int32_t number, SamplerState sampler_state)
      : DraftedSequence(std::move(sampler_state)), live(&owner), choice(number) {
    event.choice = number;
  }

  // Every sequence of an engine is a Generation.
  static Generation& of(Sequence& sequence) { return static_cast<Generation&>(sequence); }

  bool has_ended() const { return state == State::kDone; }
  // The rows whose results are needed, among the next `num_tokens`. `ends`: these include the sequence's last token.
  WantedRows wanted_rows(std::int64_t num_tokens, bool ends) const;
  // Fills in a grammar's mask, or that of the next forced token. False if every token is allowed.
  bool fill_mask(std::span<std::uint32_t> mask);

  // Adds hidden states of the rows from `first_position` on. Each position is added once and in order, so that chunks
  // and preemptions do not change the sum.
  void add_hidden(std::span<const float> rows, std::size_t width, std::int64_t first_position);
  // Adds the logprob of the prompt's token at `position`; called in order.
  void add_prompt_logprob(std::int64_t position, std::optional<TokenLogprob> logprob);
  // Adds the logprob of the next one of the request's scored tokens.
  void add_scored_token(const std::optional<TokenLogprob>& scored);
  // Appends the drawn token and the tokens that the grammar forces after it, and decides whether the generation is
  // over.
  void take(DrawnToken& drawn, std::span<const TokenId> end_of_generation);
  // Notes `num_rows` computed rows from `begin` on; returns whether prompt rows were among them, so that the next event
  // reports progress.
  bool note_progress(std::int64_t begin, std::int64_t num_rows);
  // Ends a generation that only computes its prompt.
  void finish_prompt();
  void fail(Error error) { fail(std::make_shared<const Error>(std::move(error))); }
  void fail(SharedError error) noexcept;
  FinishInfo finish_info(FinishReason reason) const;

  std::optional<MediaUse> media_use;  // absent: the prompt has no media
  LiveRequest* const live;
  const std::int32_t choice;
  OutputEvent event;                 // event that this step will send
  std::optional<FinishInfo> finish;  // decided, not yet sent
  std::int32_t pending_place = 0;    // place of the pending token among the previous step's draws

  // Logprobs of the prompt's tokens, if requested.
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;
  // By the request's pooling: the sum of the hidden states so far, the chosen one, all of them, or the scored tokens'
  // logprobs.
  std::vector<double> pooled;
  std::int64_t num_pooled = 0;  // rows

  std::optional<Clock::time_point> first_token_at;

 private:
  double pooled_scale(std::span<const double> vector) const;
  void append(TokenId token, std::span<const TokenId> end_of_generation);
  void append_forced(std::span<const TokenId> end_of_generation);
  Error why_no_token(const DrawnToken& drawn) const;
};

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
  std::int32_t num_unforked = 0;  // choices that are forked once the prompt is computed
  std::optional<Clock::time_point> started_at;
  std::optional<Clock::time_point> queue_deadline;  // absent once it has started
  SharedError no_memory;                            // allocated in advance
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
