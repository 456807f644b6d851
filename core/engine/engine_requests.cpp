#include <algorithm>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/engine/engine_impl.h"
#include "core/kv/cache_salt.h"
#include "core/model/parts/adapter.h"
#include "core/sampling/philox.h"

namespace quire {

namespace {

Result<void> timed_out() {
  return failure(ErrorKind::kTimeout, "The request's deadline passed before it was finished.", "deadline_exceeded");
}

}  // namespace

void Engine::Impl::receive(Clock::time_point now) {
  queue.drain_into(submissions_, aborts_);
  if (auto weights = queue.take_key_weights()) scheduler_.set_key_weights(*std::move(weights));
  for (Submission& submission : submissions_)
    accept(std::move(submission), now);
  for (const Abort& asked : aborts_)
    abort(asked);
  cut_overdue(now);
  receive_slot_orders();
}

// Checks the request and allocates all that it needs here: a failure ends this request alone.
void Engine::Impl::accept(Submission submission, Clock::time_point now) {
  const std::shared_ptr<const Request> request = submission.request;
  const std::shared_ptr<OutputSink> sink = submission.sink;
  const SharedError error =
      attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) { return admit(std::move(submission), now); });
  if (error == nullptr) return;
  for (std::int32_t choice = 0; choice < request->num_choices; ++choice) {
    OutputEvent event{.choice = choice};
    event.finish = FinishInfo{.reason = FinishReason::kError, .error = error};
    sink->send(std::move(event));
  }
}

Result<void> Engine::Impl::admit(Submission submission, Clock::time_point now) {
  if (Result<void> checked = check(*submission.request); !checked) return checked;
  std::unique_ptr<LiveRequest> made = make_live(submission);
  LiveRequest& live = *made;
  live_.emplace(live.request->id, std::move(made));
  try {
    if (live.request->deadline) deadlines_.emplace(*live.request->deadline, &live);
    if (const double max_queue_time = queue.options().max_queue_time_s; max_queue_time > 0.0) {
      live.queue_deadline =
          now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(max_queue_time));
      queue_deadlines_.emplace(*live.queue_deadline, &live);
    }
    scheduler_.add(*live.choices[0]);
  } catch (...) {
    erase(live);
    throw;
  }
  restore_blocks(*live.choices[0], now);
  return {};
}

Result<void> Engine::Impl::check(const Request& request) const {
  if (!healthy.load(std::memory_order_relaxed))
    return failure(ErrorKind::kInternal, "The device has failed.", "device_failed");
  if (live_.contains(request.id))
    return failure(ErrorKind::kInternal, "A request of this id is being served already.", "duplicate_request_id");
  const bool wants_logits = request.pooling == Pooling::kNone || request.pooled_output == PooledOutput::kTokenLogprobs;
  if (wants_logits && !executor_->model().has_head())
    return failure(ErrorKind::kInvalidRequest, "The model has no head: it generates no tokens.",
                   "unsupported_operation");
  if (request.prompt.empty()) return invalid("The prompt holds no tokens.", "prompt");
  if (Result<void> checked = check_media(request); !checked) return checked;
  return scheduler_.check(request);
}

std::unique_ptr<LiveRequest> Engine::Impl::make_live(Submission& submission) {
  const Request& request = *submission.request;
  auto live = std::make_unique<LiveRequest>();
  live->request = submission.request;
  live->sink = submission.sink;
  live->no_memory = no_memory_;
  live->seed = request.sampling.seed.value_or(philox(next_seed_++, {})[0]);
  live->choices.resize(static_cast<std::size_t>(request.num_choices));
  live->choices[0] = make_generation(*live, 0);
  live->choices[0]->continues_list = submission.continues_list && !request.is_background;
  live->num_unforked = request.num_choices - 1;
  live->ticket = std::move(submission.ticket);
  return live;
}

// Fetches blocks from the tiers below the pool; the sequence starts once they have come. New prompts ask on arrival,
// the next ones to start and preempted sequences as long as they wait.
void Engine::Impl::restore_blocks(Sequence& sequence, Clock::time_point now) {
  if (lower_tier_ == nullptr || sequence.max_cached_tokens <= 0) return;
  const auto& published = sequence.request->transfer.has;
  const bool is_fetch = published && lower_tier_->is_prefix(*published, sequence.table, sequence.tokens);
  lower_tier_->restore(sequence.table, sequence.tokens, sequence.prefix_limit(),
                       scheduler_.most_restore_seconds(sequence), now, is_fetch);
}

void Engine::Impl::move_blocks(Clock::time_point now) {
  if (lower_tier_ == nullptr) return;
  for (Sequence* sequence : scheduler_.next_to_start())
    restore_blocks(*sequence, now);
  lower_tier_->begin_step(now);
  send_held_ends(now);
  stats_.num_blocks_restored = lower_tier_->num_restored();
}

std::unique_ptr<Generation> Engine::Impl::make_generation(LiveRequest& live, std::int32_t choice) {
  const Request& request = *live.request;
  auto generation = std::make_unique<Generation>(live, choice,
                                                 SamplerState(request.sampling, request.prompt, end_of_generation_,
                                                              executor_->model().vocab_size(), live.seed, choice));
  Sequence& sequence = *generation;
  sequence.id = SequenceId{num_sequences_made_++};
  sequence.request = live.request;
  sequence.cache_salt = cache_salt(request.cache_salt, options_.kv_cache.isolate_by_key ? &request.key_name : nullptr,
                                   request.adapter != nullptr ? &request.adapter->content_key() : nullptr);
  sequence.tokens = request.prompt;
  sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  name_media(*generation);
  if (choice == 0 && executor_->states() != nullptr) {
    // A message ends with one of the tokens that end a generation.
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
      if (std::ranges::find(end_of_generation_, request.prompt[i]) != end_of_generation_.end())
        sequence.message_ends.push_back(static_cast<std::int64_t>(i) + 1);
    }
  }
  if (choice == 0 && request.sampling.num_prompt_logprobs) {
    sequence.max_chunk = kMaxPromptLogitRows;
    sequence.max_cached_tokens = 0;
    generation->prompt_logprobs.emplace_back();  // nothing comes before the first token
  }
  if (request.pooling != Pooling::kNone && request.pooling != Pooling::kLast) sequence.max_cached_tokens = 0;
  if (choice > 0) sequence.tokens.reserve(static_cast<std::size_t>(sequence.most_tokens()));
  if (request.grammar != nullptr) generation->grammar = request.grammar->start();
  if (executor_->model().is_causal()) begin_drafting(*generation);
  return generation;
}

void Engine::Impl::abort(const Abort& asked) {
  const auto found = live_.find(asked.request_id);
  if (found == live_.end()) return;
  LiveRequest& live = *found->second;
  if (!asked.choice) {
    end_request(live, FinishReason::kAbort, nullptr);
    return;
  }
  const auto choice = static_cast<std::size_t>(*asked.choice);
  if (choice >= live.choices.size() || live.choices[choice] == nullptr) return;
  Generation& generation = *live.choices[choice];
  if (live.num_unforked > 0) return;  // the others have not been forked from it yet
  end(generation, generation.finish_info(FinishReason::kAbort));
}

void Engine::Impl::cut_overdue(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    end_request(*deadlines_.begin()->second, FinishReason::kAbort, attempt(no_memory_, timed_out));
  }
  while (!queue_deadlines_.empty() && queue_deadlines_.begin()->first <= now) {
    const auto waited_too_long = [this]() -> Result<void> {
      Error error = queue.overloaded();
      error.message = "The request waited too long to be started. Please retry later.";
      error.code = "queue_timeout";
      return tl::make_unexpected(std::move(error));
    };
    end_request(*queue_deadlines_.begin()->second, FinishReason::kError, attempt(no_memory_, waited_too_long));
  }
  const Clock::rep drain = drain_deadline.load(std::memory_order_acquire);
  if (now.time_since_epoch().count() >= drain) {
    cut_all(FinishReason::kAbort, drained_error());
  }
}

SharedError Engine::Impl::drained_error() const {
  return attempt(no_memory_, []() -> Result<void> { return tl::make_unexpected(server_draining(kCutByDrain)); });
}

void Engine::Impl::note_started(const StepPlan& plan, Clock::time_point now) {
  for (Sequence* sequence : plan.started) {
    LiveRequest& live = *Generation::of(*sequence).live;
    live.started_at = now;
    live.ticket.give_back();
    if (live.queue_deadline) {
      queue_deadlines_.erase({*live.queue_deadline, &live});
      live.queue_deadline.reset();
    }
    // Memory for all tokens that it can have, so that appending one allocates nothing.
    guarded(Generation::of(*sequence),
            [&] { sequence->tokens.reserve(static_cast<std::size_t>(sequence->most_tokens())); });
    stats_.prompt_tokens += static_cast<std::uint64_t>(sequence->num_prompt_tokens);
    meter_.note_started(sequence->num_prompt_tokens);
  }
}

// Sends the last event; the last choice to end destroys the request. A generation stays as long as a step in flight
// refers to it. Statistics are published first, so that they count a request whose client has its whole answer.
void Engine::Impl::end(Generation& generation, FinishInfo info) {
  LiveRequest& live = *generation.live;
  generation.event.num_cached_tokens = info.num_cached_tokens;
  if (info.reason != FinishReason::kError) note_slot(generation);
  generation.event.finish = std::move(info);
  const bool is_held = hold_end(generation);
  scheduler_.finish(generation);
  generation.state = Sequence::State::kDone;
  publish();
  if (!is_held) live.sink->send(std::move(generation.event));
  auto& choice = live.choices[static_cast<std::size_t>(generation.choice)];
  // Kept until the latest step is done, since an earlier step may be in flight too.
  const auto names = [&](const Step& step) { return step.names(generation); };
  if (latest_ != nullptr && std::ranges::any_of(steps_, names)) latest_->ended.push_back(std::move(choice));
  choice.reset();
  if (++live.num_ended == live.request->num_choices) erase(live);
}

// Holds the generation's last event until the shared store has the prompt, if requested; returns whether it does.
// Called before its blocks are released.
bool Engine::Impl::hold_end(Generation& generation) noexcept {
  const LiveRequest& live = *generation.live;
  const FinishReason reason = generation.event.finish->reason;
  const bool is_whole = reason == FinishReason::kStop || reason == FinishReason::kLength;
  const bool is_last = live.num_ended + 1 == live.request->num_choices;
  if (!live.request->transfer.publishes || !is_whole || !is_last) return false;
  if (lower_tier_ == nullptr || !lower_tier_->can_publish()) return false;
  return attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
           std::list<HeldEnd> held(1);
           lower_tier_->begin_publication(held.front().publication, generation.table, live.request->prompt,
                                          Clock::now());
           held.front().sink = live.sink;
           held.front().event = std::move(generation.event);
           held_ends_.splice(held_ends_.end(), held);
           return {};
         }) == nullptr;
}

// Sends the events whose publication has ended; without a time, all events.
void Engine::Impl::send_held_ends(std::optional<Clock::time_point> now) {
  for (auto held = held_ends_.begin(); held != held_ends_.end();) {
    if (now && !lower_tier_->has_ended(held->publication, *now)) {
      ++held;
      continue;
    }
    const SharedError error = attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
      held->event.finish->published =
          std::make_shared<const SharedPrefix>(lower_tier_->end_publication(held->publication));
      return {};
    });
    if (error != nullptr) log::warn("no memory to say what of a prompt is published");
    held->sink->send(std::move(held->event));
    held = held_ends_.erase(held);
  }
}

void Engine::Impl::end_request(LiveRequest& live, FinishReason reason, const SharedError& error) {
  // Choices that were never forked end with the first one's figures.
  if (live.num_unforked > 0) {
    for (std::int32_t choice = 1; choice <= live.num_unforked; ++choice) {
      OutputEvent event{.choice = choice};
      event.finish = live.choices[0]->finish_info(reason);
      event.finish->error = error;
      live.sink->send(std::move(event));
      ++live.num_ended;
    }
  }
  // The last end() erases the request: nothing of it is touched after.
  std::int32_t num_left = live.request->num_choices - live.num_ended;
  for (std::size_t i = 0; num_left > 0; ++i) {
    if (live.choices[i] == nullptr) continue;
    FinishInfo info = live.choices[i]->finish_info(reason);
    info.error = error;
    --num_left;
    end(*live.choices[i], std::move(info));
  }
}

void Engine::Impl::erase(LiveRequest& live) {
  if (live.request->deadline) deadlines_.erase({*live.request->deadline, &live});
  if (live.queue_deadline) queue_deadlines_.erase({*live.queue_deadline, &live});
  live_.erase(live_.find(live.request->id));
}

void Engine::Impl::cut_all(FinishReason reason, const SharedError& error) {
  send_held_ends(std::nullopt);
  while (!live_.empty())
    end_request(*live_.begin()->second, reason, error);
}

}  // namespace quire
