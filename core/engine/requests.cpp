#include "core/engine/requests.h"

#include <algorithm>
#include <random>

#include "core/kv/cache_salt.h"
#include "core/model/parts/adapter.h"
#include "core/sampling/philox.h"

namespace quire {

namespace {

Result<void> timed_out() {
  return failure(ErrorKind::kTimeout, "The request's deadline passed before it was finished.", "deadline_exceeded");
}

Result<void> drained() {
  return tl::make_unexpected(server_draining(kCutByDrain));
}

std::uint64_t first_seed(std::uint64_t configured) {
  if (configured != 0) return configured;
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

Requests::Requests(EngineParts& parts, RequestQueue& queue, std::function<void()> publish)
    : parts_(parts),
      queue_(queue),
      publish_(std::move(publish)),
      held_ends_(parts.tiers.lower(), parts.no_memory),
      next_seed_(first_seed(parts.options.seed)) {}

void Requests::receive(Clock::time_point now, Clock::time_point drain_by) {
  queue_.drain_into(submissions_, aborts_);
  if (auto weights = queue_.take_key_weights()) parts_.scheduler.set_key_weights(*std::move(weights));
  for (Submission& submission : submissions_)
    accept(std::move(submission), now);
  for (const Abort& asked : aborts_)
    abort(asked);
  cut_overdue(now);
  if (now >= drain_by) cut_all();
}

// Checks the request and allocates all that it needs, so that a failure ends this request alone.
void Requests::accept(Submission submission, Clock::time_point now) {
  const std::shared_ptr<const Request> request = submission.request;
  const std::shared_ptr<OutputSink> sink = submission.sink;
  const SharedError error =
      attempt(parts_.no_memory, [&]() QUIRE_REQUIRES(kEngineThread) { return admit(std::move(submission), now); });
  if (error == nullptr) return;
  for (std::int32_t choice = 0; choice < request->num_choices; ++choice) {
    OutputEvent event{.choice = choice};
    event.finish = FinishInfo{.reason = FinishReason::kError, .error = error};
    sink->send(std::move(event));
  }
}

Result<void> Requests::admit(Submission submission, Clock::time_point now) {
  if (Result<void> checked = check(*submission.request); !checked) return checked;
  std::unique_ptr<LiveRequest> made = make_live(submission);
  LiveRequest& live = *made;
  live_.emplace(live.request->id, std::move(made));
  try {
    if (live.request->deadline) deadlines_.emplace(*live.request->deadline, &live);
    if (const double max_queue_time = queue_.options().max_queue_time_s; max_queue_time > 0.0) {
      live.queue_deadline =
          now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(max_queue_time));
      queue_deadlines_.emplace(*live.queue_deadline, &live);
    }
    parts_.scheduler.add(*live.choices[0]);
  } catch (...) {
    erase(live);
    throw;
  }
  parts_.tiers.restore(*live.choices[0], now);
  return {};
}

Result<void> Requests::check(const Request& request) const {
  if (has_failed_) return failure(ErrorKind::kInternal, "The device has failed.", "device_failed");
  if (live_.contains(request.id))
    return failure(ErrorKind::kInternal, "A request of this id is being served already.", "duplicate_request_id");
  const bool wants_logits = request.pooling == Pooling::kNone || request.pooled_output == PooledOutput::kTokenLogprobs;
  if (wants_logits && !parts_.executor->model().has_head())
    return failure(ErrorKind::kInvalidRequest, "The model has no head: it generates no tokens.",
                   "unsupported_operation");
  if (request.prompt.empty()) return invalid("The prompt holds no tokens.", "prompt");
  if (Result<void> checked = parts_.media.check(request); !checked) return checked;
  return parts_.scheduler.check(request);
}

std::unique_ptr<LiveRequest> Requests::make_live(Submission& submission) {
  const Request& request = *submission.request;
  auto live = std::make_unique<LiveRequest>();
  live->request = submission.request;
  live->sink = submission.sink;
  live->no_memory = parts_.no_memory;
  live->seed = request.sampling.seed.value_or(philox(next_seed_++, {})[0]);
  live->choices.resize(static_cast<std::size_t>(request.num_choices));
  live->choices[0] = make_generation(*live, 0);
  live->choices[0]->continues_list = submission.continues_list && !request.is_background;
  live->num_unforked = request.num_choices - 1;
  live->ticket = std::move(submission.ticket);
  return live;
}

std::unique_ptr<Generation> Requests::make_generation(LiveRequest& live, std::int32_t choice) {
  const Request& request = *live.request;
  auto generation =
      std::make_unique<Generation>(live, choice,
                                   SamplerState(request.sampling, request.prompt, parts_.end_of_generation,
                                                parts_.executor->model().vocab_size(), live.seed, choice));
  Sequence& sequence = *generation;
  sequence.id = SequenceId{num_sequences_made_++};
  sequence.request = live.request;
  sequence.cache_salt =
      cache_salt(request.cache_salt, parts_.options.kv_cache.isolate_by_key ? &request.key_name : nullptr,
                 request.adapter != nullptr ? &request.adapter->content_key() : nullptr);
  sequence.tokens = request.prompt;
  sequence.num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  parts_.media.name_rows(*generation);
  if (choice == 0 && parts_.executor->states() != nullptr) {
    // A message ends with one of the tokens that end a generation.
    for (std::size_t i = 0; i < request.prompt.size(); ++i) {
      if (std::ranges::find(parts_.end_of_generation, request.prompt[i]) != parts_.end_of_generation.end())
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
  parts_.drafting.begin(*generation, choice);
  return generation;
}

void Requests::abort(const Abort& asked) {
  const auto found = live_.find(asked.request_id);
  if (found == live_.end()) return;
  LiveRequest& live = *found->second;
  if (!asked.choice) {
    end(live, FinishReason::kAbort, nullptr);
    return;
  }
  const auto choice = static_cast<std::size_t>(*asked.choice);
  if (choice >= live.choices.size() || live.choices[choice] == nullptr) return;
  Generation& generation = *live.choices[choice];
  if (live.num_unforked > 0) return;  // the others have not been forked from it yet
  end(generation, generation.finish_info(FinishReason::kAbort));
}

void Requests::cut_overdue(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    end(*deadlines_.begin()->second, FinishReason::kAbort, attempt(parts_.no_memory, timed_out));
  }
  while (!queue_deadlines_.empty() && queue_deadlines_.begin()->first <= now) {
    const auto waited_too_long = [this]() -> Result<void> {
      Error error = queue_.overloaded();
      error.message = "The request waited too long to be started. Please retry later.";
      error.code = "queue_timeout";
      return tl::make_unexpected(std::move(error));
    };
    end(*queue_deadlines_.begin()->second, FinishReason::kError, attempt(parts_.no_memory, waited_too_long));
  }
}

void Requests::note_started(const StepPlan& plan, Clock::time_point now) {
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
  }
}

void Requests::end(Generation& generation, FinishInfo info) {
  LiveRequest& live = *generation.live;
  generation.event.num_cached_tokens = info.num_cached_tokens;
  if (info.reason != FinishReason::kError) parts_.slots.note(generation);
  generation.event.finish = std::move(info);
  const bool is_held = held_ends_.hold(generation);
  parts_.scheduler.finish(generation);
  generation.state = Sequence::State::kDone;
  publish_();
  if (!is_held) live.sink->send(std::move(generation.event));
  auto& choice = live.choices[static_cast<std::size_t>(generation.choice)];
  parts_.steps.keep(choice);
  choice.reset();
  if (++live.num_ended == live.request->num_choices) erase(live);
}

void Requests::end(LiveRequest& live, FinishReason reason, const SharedError& error) {
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
  // The last end() destroys the request, which is not used after it.
  std::int32_t num_left = live.request->num_choices - live.num_ended;
  for (std::size_t i = 0; num_left > 0; ++i) {
    if (live.choices[i] == nullptr) continue;
    FinishInfo info = live.choices[i]->finish_info(reason);
    info.error = error;
    --num_left;
    end(*live.choices[i], std::move(info));
  }
}

void Requests::erase(LiveRequest& live) {
  if (live.request->deadline) deadlines_.erase({*live.request->deadline, &live});
  if (live.queue_deadline) queue_deadlines_.erase({*live.queue_deadline, &live});
  live_.erase(live_.find(live.request->id));
}

void Requests::end_all(FinishReason reason, const SharedError& error) {
  held_ends_.send(std::nullopt);
  while (!live_.empty())
    end(*live_.begin()->second, reason, error);
}

void Requests::cut_all() {
  end_all(FinishReason::kAbort, attempt(parts_.no_memory, drained));
}

void Requests::fail_all(const SharedError& error) {
  has_failed_ = true;
  end_all(FinishReason::kError, error);
}

std::optional<Clock::time_point> Requests::next_deadline() const {
  std::optional<Clock::time_point> next = held_ends_.next_deadline();
  for (const Deadlines* deadlines : {&deadlines_, &queue_deadlines_}) {
    if (!deadlines->empty()) next = std::min(next.value_or(deadlines->begin()->first), deadlines->begin()->first);
  }
  return next;
}

}  // namespace quire
