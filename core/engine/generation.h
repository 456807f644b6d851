// Generation: one choice of a live request: its sequence and what else is remembered from token to token. Engine thread
// only. LiveRequest: a request between its arrival and its last finish event.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/request_queue.h"
#include "core/grammar/grammar.h"
#include "core/request/request.h"
#include "core/sampling/sampler.h"
#include "core/sched/sequence.h"

namespace quire {

struct LiveRequest;

struct Generation : Sequence {
  Generation(LiveRequest& owner, std::int32_t number, SamplerState sampler_state)
      : live(&owner), choice(number), sampler(std::move(sampler_state)) {
    event.choice = number;
  }

  // The engine's sequences are generations, all of them.
  static Generation& of(Sequence& sequence) { return static_cast<Generation&>(sequence); }

  // Whether the request keeps `token` away here, whatever model and grammar say.
  bool forbids(TokenId token) const {
    return sampler.forbids(token, std::span(tokens).subspan(static_cast<std::size_t>(num_prompt_tokens)));
  }

  LiveRequest* const live;
  const std::int32_t choice;
  SamplerState sampler;
  std::unique_ptr<GrammarState> grammar;  // null: none
  std::vector<TokenId> forced;            // what must be sampled next, last first; where the model is asked for it
  OutputEvent event;                      // what this step will send
  std::optional<FinishInfo> finish;       // decided in this step

  // Of the prompt's rows that are wanted themselves.
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;
  // The sum of the hidden states so far, the one that was chosen, all of them, or the logits that are asked for.
  std::vector<double> pooled;
  std::int64_t num_pooled = 0;  // rows

  std::int32_t num_generated = 0;  // a stop token included
  std::optional<Clock::time_point> first_token_at;
};

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
  std::optional<Clock::time_point> queue_deadline;  // until it has started
};

}  // namespace quire
