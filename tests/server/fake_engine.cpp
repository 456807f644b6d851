#include "tests/server/fake_engine.h"

#include <algorithm>

namespace quire::test {

namespace {

std::vector<TokenId> repeat_prompt(const Request& request, std::int32_t) {
  std::vector<TokenId> output;
  std::copy_if(request.prompt.begin(), request.prompt.end(), std::back_inserter(output),
               [](TokenId token) { return token.value < 256; });
  return output;
}

}  // namespace

FakeEngine::FakeEngine(Script script, QueueOptions options)
    : script_(script ? std::move(script) : Script(&repeat_prompt)), queue_(options), thread_([this] { run(); }) {}

void FakeEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queue_.wake();
  if (thread_.joinable()) thread_.join();
}

void FakeEngine::wait_live(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return live_.size() == count; });
}

void FakeEngine::wait_aborted(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_aborted_ >= count; });
}

EngineStats FakeEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats;
  stats.num_steps = num_steps_;
  stats.num_running = static_cast<decltype(stats.num_running)>(live_.size());
  return stats;
}

std::shared_ptr<const Request> FakeEngine::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void FakeEngine::hold(bool held) {
  {
    const std::lock_guard lock(mutex_);
    held_ = held;
  }
  queue_.wake();
}

void FakeEngine::allow_steps(int count) {
  {
    const std::lock_guard lock(mutex_);
    num_allowed_ += count;
  }
  queue_.wake();
}

namespace {

// A vector that is equal for all texts, or scores that grow with the text's length.
std::vector<float> pooled_output(const Request& request) {
  const auto length = static_cast<float>(request.prompt.size());
  if (request.pooled_output == PooledOutput::kLabels) return {length / 64.0F, 0.0F};
  if (request.pooled_output == PooledOutput::kTokenLogprobs) {
    std::vector<float> logits;
    for (const TokenId token : request.scored_tokens)
      logits.push_back(static_cast<float>(token.value) - length);
    return logits;
  }
  std::vector<float> vector = {0.6F, 0.0F, 0.8F, 0.0F};
  if (request.pooled_output == PooledOutput::kVector) vector = {3.0F, 0.0F, 4.0F, length};
  if (request.pooling != Pooling::kEach) return vector;
  std::vector<float> rows;
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    rows.insert(rows.end(), vector.begin(), vector.end());
  return rows;
}

}  // namespace

void FakeEngine::accept(Submission submission) {
  Live live;
  last_ = submission.request;
  for (std::int32_t i = 0; i < submission.request->num_choices; ++i) {
    live.choices.push_back(Choice{script_(*submission.request, i)});
  }
  live.submission = std::move(submission);
  const std::string id = live.submission.request->id;
  live_.emplace(id, std::move(live));
}

void FakeEngine::emit(Live& live, std::int32_t index) {
  Choice& choice = live.choices[static_cast<std::size_t>(index)];
  const Request& request = *live.submission.request;
  const auto max_tokens = static_cast<std::size_t>(request.sampling.max_tokens);
  OutputEvent event;
  event.choice = index;
  if (request.pooling != Pooling::kNone) {
    event.embedding = pooled_output(request);
    event.finish = FinishInfo{};
    choice.ended = true;
    live.submission.sink->send(std::move(event));
    return;
  }
  if (choice.sent == 0 && index == 0 && request.reports_progress)
    event.progress = PromptProgress{static_cast<std::int64_t>(request.prompt.size()), std::chrono::milliseconds(3)};
  if (choice.sent < choice.script.size()) {
    const TokenId token = choice.script[choice.sent++];
    event.tokens.push_back(token);
    if (request.sampling.num_logprobs)
      event.logprobs.push_back({token, -0.5F, {{token, -0.5F}, {TokenId{256}, -1.5F}}});
  }
  if (choice.sent == 1 && index == 0 && request.sampling.num_prompt_logprobs) {
    event.prompt_logprobs.emplace_back(std::nullopt);
    for (std::size_t i = 1; i < request.prompt.size(); ++i) {
      event.prompt_logprobs.emplace_back(TokenLogprob{request.prompt[i], -0.25F, {}});
    }
  }
  const bool full = choice.sent >= max_tokens;
  if (full || choice.sent >= choice.script.size()) {
    choice.ended = true;
    FinishInfo info;
    info.reason = full ? FinishReason::kLength : FinishReason::kStop;
    info.num_prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
    info.num_generated_tokens = static_cast<std::int32_t>(choice.sent) + (full ? 0 : 1);
    if (!full) info.stop_token = TokenId{257};
    event.finish = info;
  }
  live.submission.sink->send(std::move(event));
}

// Ends each choice, like the engine.
void FakeEngine::end_aborted(Live& live, std::optional<std::int32_t> only) {
  for (std::size_t i = 0; i < live.choices.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    if (live.choices[i].ended || only.value_or(index) != index) continue;
    live.choices[i].ended = true;
    live.submission.sink->send({.choice = index, .finish = FinishInfo{.reason = FinishReason::kAbort}});
  }
}

bool FakeEngine::step() {
  bool worked = false;
  for (auto each = live_.begin(); each != live_.end();) {
    Live& live = each->second;
    live.submission.ticket = {};  // leaves the queue
    for (std::size_t i = 0; i < live.choices.size(); ++i) {
      if (!live.choices[i].ended) emit(live, static_cast<std::int32_t>(i));
    }
    worked = true;
    ++num_steps_;
    const bool over =
        std::all_of(live.choices.begin(), live.choices.end(), [](const Choice& choice) { return choice.ended; });
    each = over ? live_.erase(each) : std::next(each);
  }
  return worked;
}

void FakeEngine::run() {
  kEngineThread.assume();
  std::vector<Submission> submissions;
  std::vector<Abort> aborts;
  while (true) {
    queue_.drain_into(submissions, aborts);
    bool worked = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (Submission& submission : submissions)
        accept(std::move(submission));
      for (const auto& asked : aborts) {
        if (!asked.choice) ++num_aborted_;
        const auto found = live_.find(asked.request_id);
        if (found == live_.end()) continue;
        end_aborted(found->second, asked.choice);
        if (!asked.choice) live_.erase(found);
      }
      const bool allowed = held_ && num_allowed_ > 0 && !live_.empty();
      if (allowed) --num_allowed_;
      worked = (!held_ || allowed) && step();
      changed_.notify_all();
    }
    if (!worked) queue_.wait(std::nullopt);
  }
}

}  // namespace quire::test
