#include <algorithm>
#include <string>
#include <utility>

#include "core/engine/engine_impl.h"
#include "core/sampling/philox.h"

namespace quire {

namespace {

Error timed_out() {
  return {ErrorKind::kTimeout, "The request's deadline passed before it was finished.", "deadline_exceeded", {}, {}};
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
}

void Engine::Impl::accept(Submission submission, Clock::time_point now) {
  const std::shared_ptr<const Request> request = submission.request;
  const std::shared_ptr<OutputSink> sink = submission.sink;
  Result<std::unique_ptr<LiveRequest>> admitted = admit(submission);
  if (!admitted) {
    for (std::int32_t choice = 0; choice < request->num_choices; ++choice) {
      OutputEvent event{.choice = choice};
      event.finish = FinishInfo{.reason = FinishReason::kError, .error = admitted.error()};
      sink->send(std::move(event));
    }
    return;
  }
  LiveRequest& live = **admitted;
  live_.emplace(request->id, *std::move(admitted));
  if (request->deadline) deadlines_.emplace(*request->deadline, &live);
  if (const double max_queue_time = queue.options().max_queue_time_s; max_queue_time > 0.0) {
    live.queue_deadline =
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(max_queue_time));
    queue_deadlines_.emplace(*live.queue_deadline, &live);
  }
  scheduler_.add(*live.choices[0]);
  restore_blocks(*live.choices[0], now);
}

// What the request itself needs, its memory included, is found out here: what fails ends this request alone.
Result<std::unique_ptr<LiveRequest>> Engine::Impl::admit(Submission& submission) {
  const Request& request = *submission.request;
  if (!healthy.load(std::memory_order_relaxed))
    return failure(ErrorKind::kInternal, "The device has failed.", "device_failed");
  if (live_.contains(request.id))
    return failure(ErrorKind::kInternal, "A request of this id is being served already.", "duplicate_request_id");
  const bool wants_logits = request.pooling == Pooling::kNone || request.pooled_output == PooledOutput::kTokenLogprobs;
  if (wants_logits && !executor_->model().has_head())
    return failure(ErrorKind::kInvalidRequest, "The model has no head: it generates no tokens.",
                   "unsupported_operation");
  if (request.prompt.empty()) return invalid("The prompt holds no tokens.", "prompt");
  if (Result<void> fits = scheduler_.check(request); !fits) return tl::make_unexpected(std::move(fits.error()));
  try {
    auto live = std::make_unique<LiveRequest>();
    live->request = submission.request;
    live->sink = submission.sink;
    live->seed = request.sampling.seed.value_or(philox(next_seed_++, {})[0]);
    live->choices.resize(static_cast<std::size_t>(request.num_choices));
    live->choices[0] = make_generation(*live, 0);
    live->num_unforked = request.num_choices - 1;
    live->ticket = std::move(submission.ticket);
    return live;
  } catch (const std::bad_alloc&) {
    return tl::make_unexpected(out_of_memory());
  } catch (const std::exception& error) {
    return failure(ErrorKind::kInternal, error.what(), "request_failed");
  }
}

// What waits and finds blocks below the pool is started once they have come: a new prompt's are asked for as it
// arrives, those of the next to start, a preempted sequence's above all, as long as they wait.
void Engine::Impl::restore_blocks(Sequence& sequence, Clock::time_point now) {
  if (lower_tier_ == nullptr || sequence.max_cached_tokens <= 0) return;
  lower_tier_->restore(sequence.table, sequence.tokens, sequence.prefix_limit(),
                       scheduler_.most_restore_seconds(sequence), now);
}

void Engine::Impl::move_blocks(Clock::time_point now) {
  if (lower_tier_ == nullptr) return;
  for (Sequence* sequence : scheduler_.next_to_start())
    restore_blocks(*sequence, now);
  lower_tier_->begin_step(now);
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
  sequence.cache_salt = request.cache_salt;
  if (options_.kv_cache.isolate_by_key) sequence.cache_salt += '\0' + request.key_name;
  sequence.tokens = request.prompt;
  sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
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
  if (request.grammar != nullptr) generation->grammar = request.grammar->start();
  if (can_draft()) begin_drafting(*generation);
  return generation;
}

void Engine::Impl::abort(const Abort& asked) {
  const auto found = live_.find(asked.request_id);
  if (found == live_.end()) return;
  LiveRequest& live = *found->second;
  if (!asked.choice) {
    end_request(live, FinishReason::kAbort, std::nullopt);
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
    end_request(*deadlines_.begin()->second, FinishReason::kAbort, timed_out());
  }
  while (!queue_deadlines_.empty() && queue_deadlines_.begin()->first <= now) {
    Error error = queue.overloaded();
    error.message = "The request waited too long to be started. Please retry later.";
    error.code = "queue_timeout";
    end_request(*queue_deadlines_.begin()->second, FinishReason::kError, error);
  }
  const Clock::rep drain = drain_deadline.load(std::memory_order_acquire);
  if (now.time_since_epoch().count() >= drain) {
    cut_all(FinishReason::kAbort, server_draining(kCutByDrain));
  }
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
    stats_.prompt_tokens += static_cast<std::uint64_t>(sequence->num_prompt_tokens);
    meter_.note_started(sequence->num_prompt_tokens);
  }
}

// Sends the last event; the last choice to end destroys the request. A generation stays as long as a step that is in
// flight names it. Published before it is sent: a client that has its whole answer finds it counted.
void Engine::Impl::end(Generation& generation, FinishInfo info) {
  LiveRequest& live = *generation.live;
  generation.event.num_cached_tokens = info.num_cached_tokens;
  generation.event.finish = std::move(info);
  scheduler_.finish(generation);
  generation.state = Sequence::State::kDone;
  publish();
  live.sink->send(std::move(generation.event));
  auto& choice = live.choices[static_cast<std::size_t>(generation.choice)];
  if (latest_ != nullptr) latest_->ended.push_back(std::move(choice));
  choice.reset();
  if (++live.num_ended == live.request->num_choices) erase(live);
}

void Engine::Impl::end_request(LiveRequest& live, FinishReason reason, const std::optional<Error>& error) {
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
  const std::string id = live.request->id;
  live_.erase(id);
}

void Engine::Impl::cut_all(FinishReason reason, const Error& error) {
  while (!live_.empty())
    end_request(*live_.begin()->second, reason, error);
}

}  // namespace quire
