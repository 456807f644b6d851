#include "core/executor/device_executor.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "core/base/log.h"
#include "kernels/check.h"
#include "kernels/device_error.h"

namespace quire {

namespace {

StepOps& steps_of(Backend& backend) {
  StepOps* const steps = backend.steps();
  QUIRE_CHECK(steps != nullptr, "a backend without steps in flight");
  return *steps;
}

DrawnToken drawn_token(const TokenDrawn& drawn) {
  if (drawn.status == TokenDrawn::Status::kDrawn) return {.token = TokenId{drawn.token}};
  return {.has_no_numbers = drawn.status == TokenDrawn::Status::kNoNumbers};
}

// Equals Sampler::logprob_of.
TokenLogprob logprob_of(const TokenScored& scored, TokenId token) {
  const double log_sum = std::log(scored.sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  TokenLogprob out{.token = token, .logprob = logprob(scored.logit), .top = {}};
  out.top.reserve(static_cast<std::size_t>(scored.num_top));
  for (const TokenScored::Top& top : std::span(scored.top).first(static_cast<std::size_t>(scored.num_top)))
    out.top.emplace_back(TokenId{top.token}, logprob(top.logit));
  return out;
}

}  // namespace

DeviceExecutor::DeviceExecutor(Model& model, Backend& backend, ExecutorMemory memory, const ExecutorLimits& limits)
    : model_(model),
      backend_(backend),
      steps_(steps_of(backend)),
      memory_(std::move(memory)),
      draft_round_(model, backend),
      sampler_(backend, model.vocab_size(), limits.max_tokens) {
  model_.reserve(limits.max_rows, limits.max_logit_rows());
  const std::int64_t max_draws = limits.max_draws();
  const std::int64_t max_scores = max_draws + limits.max_logit_rows();
  if (model.has_head()) steps_.reserve(max_draws, max_scores, model.vocab_size());
  plan_.reserve(static_cast<std::size_t>(max_draws));
  host_rows_.reserve(static_cast<std::size_t>(max_draws));
  host_places_.reserve(static_cast<std::size_t>(max_draws));
  draft_round_.reserve(static_cast<std::size_t>(limits.max_sequences));
  for (Submitted& step : submitted_) {
    step.executor = this;
    step.output.tokens.reserve(static_cast<std::size_t>(max_draws));
    step.output.logprobs.reserve(static_cast<std::size_t>(limits.max_logit_rows()));
    step.drawn_places.reserve(static_cast<std::size_t>(max_draws));
    step.scores.reserve(static_cast<std::size_t>(max_scores));
    step.targets.reserve(static_cast<std::size_t>(max_scores));
  }
}

Ticket& DeviceExecutor::submit(const StepPlan& plan, const StepArrays& arrays) {
  Submitted& step = submitted_[num_submitted_++ % submitted_.size()];
  step.output.clear();
  step.logits = {};
  step.drawn_places.clear();
  step.scores.clear();
  step.targets.clear();
  step.failure = draft_round_.take_failure();
  try {
    step.number = steps_.begin();
    compute(step, plan, arrays);
    steps_.launch();
  } catch (const DeviceError&) {
    step.failure = std::current_exception();
  } catch (...) {
    finish_moves(step);
    throw;
  }
  return step;
}

// Waits for the moves of a step whose rows will not be computed.
void DeviceExecutor::finish_moves(Submitted& step) {
  try {
    steps_.wait(step.number);
  } catch (const DeviceError& error) {  // the next step reports it
    log::error("blocks were not moved: {}", error.what());
  }
}

void DeviceExecutor::compute(Submitted& step, const StepPlan& plan, const StepArrays& arrays) {
  move(step, plan.transfers);
  if (plan.empty()) return;
  const bool is_decode = plan.num_tokens == std::ssize(plan.entries);
  if (is_decode) steps_.expect_repetition();
  const ModelOutput computed = model_.forward(memory_.with_storages(arrays), *memory_.storage);
  QUIRE_CHECK(computed.num_rows == arrays.num_rows(), "a step on a device is computed whole");
  step.logits = computed.logits;
  step.output.hidden = dense_values(backend_.on_host(computed.hidden, HostResult::kHidden));
  step.output.labels = dense_values(backend_.on_host(computed.labels, HostResult::kLabels));
}

void DeviceExecutor::move(Submitted& step, const Transfers& transfers) {
  try {
    transfers_.clear();
    memory_.list_moves(transfers.moves, transfers_);
    steps_.move_blocks(transfers_);
    memory_.copy(transfers.copies);
  } catch (const std::bad_alloc&) {  // no memory for the lists; move() needs none
    step.output.moved = memory_.move(transfers);
  }
}

void DeviceExecutor::Submitted::draw(const DrawBatch& batch) {
  if (failure != nullptr) return;
  try {
    executor->draw(*this, batch);
  } catch (const DeviceError&) {
    failure = std::current_exception();
  } catch (const std::bad_alloc&) {  // no host memory for the arrays of the draws
    drawn_places.clear();
    targets.clear();
    std::ranges::fill(output.tokens, DrawnToken{.out_of_memory = true});
    std::ranges::fill(output.logprobs, std::nullopt);
  }
}

// False if the host draws.
bool DeviceExecutor::plan_draw(Submitted& step, const DrawBatch& batch, std::size_t i) {
  const DrawRow& draw = batch.draws[i];
  if (!DrawPlan::draws_on_device(*draw.state)) return false;
  const auto place = static_cast<std::int64_t>(i);
  plan_.add(sample_row(batch.draws, i, {}), draw.logit_row, place, step.logits.cols);
  step.drawn_places.push_back(i);
  if (const auto num_top = DrawPlan::num_logprobs(*draw.state)) {
    step.scores.push_back({draw.logit_row, static_cast<std::int32_t>(-1 - place), *num_top});
    step.targets.push_back(&step.output.tokens[i].logprob);
  }
  return true;
}

void DeviceExecutor::draw(Submitted& step, const DrawBatch& batch) {
  step.output.tokens.resize(batch.draws.size());
  step.output.logprobs.resize(batch.scores.size());
  plan_.clear();
  bool needs_host = false;
  for (std::size_t i = 0; i < batch.draws.size(); ++i)
    needs_host = !plan_draw(step, batch, i) || needs_host;
  for (std::size_t i = 0; i < batch.scores.size(); ++i) {
    const ScoreRow& score = batch.scores[i];
    const bool fits = score.num_top <= TokenScore::kMostTop;
    needs_host = needs_host || !fits;
    if (!fits) continue;
    step.scores.push_back({score.logit_row, score.token.value, score.num_top});
    step.targets.push_back(&step.output.logprobs[i]);
  }
  steps_.draw(step.logits, std::ssize(batch.draws), plan_.draws(), step.scores);
  if (needs_host) draw_on_host(step, batch);
  steps_.end();
}

// The rows that the device does not draw or score.
void DeviceExecutor::draw_on_host(Submitted& step, const DrawBatch& batch) {
  std::int64_t first = step.logits.rows;
  std::int64_t last = 0;
  const auto for_each = [&](const auto& on_draw, const auto& on_score) {
    for (std::size_t i = 0; i < batch.draws.size(); ++i) {
      if (!DrawPlan::draws_on_device(*batch.draws[i].state)) on_draw(i, batch.draws[i].logit_row);
    }
    for (std::size_t i = 0; i < batch.scores.size(); ++i) {
      if (batch.scores[i].num_top > TokenScore::kMostTop) on_score(i, batch.scores[i].logit_row);
    }
  };
  const auto widen = [&](std::size_t, std::int64_t row) {
    first = std::min(first, row);
    last = std::max(last, row + 1);
  };
  for_each(widen, widen);
  MatrixView wanted = step.logits;
  wanted.data += first * wanted.stride;
  wanted.rows = last - first;
  const MatrixView logits = backend_.on_host(wanted, HostResult::kLogits);
  steps_.wait_enqueued();
  host_rows_.clear();
  host_places_.clear();
  const auto add_draw = [&](std::size_t i, std::int64_t row) {
    host_rows_.push_back(sample_row(batch.draws, i, logits_of(logits, row - first)));
    host_places_.push_back(i);
  };
  // Scores come first: drawing overwrites the logits.
  for_each([](std::size_t, std::int64_t) {},
           [&](std::size_t i, std::int64_t row) {
             const ScoreRow& score = batch.scores[i];
             step.output.logprobs[i] = Sampler::logprob_of(logits_of(logits, row - first), score.token, score.num_top);
           });
  for_each(add_draw, [](std::size_t, std::int64_t) {});
  sampler_.sample(host_rows_);
  for (std::size_t i = 0; i < host_rows_.size(); ++i) {
    DrawnToken& drawn = host_rows_[i].drawn;
    if (drawn.token) steps_.put_drawn(static_cast<std::int64_t>(host_places_[i]), drawn.token->value);
    step.output.tokens[host_places_[i]] = std::move(drawn);
  }
}

StepOutput& DeviceExecutor::Submitted::wait() {
  if (failure == nullptr) {
    try {
      executor->steps_.wait(number);
    } catch (const DeviceError&) {
      failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  executor->finish(*this);
  return output;
}

void DeviceExecutor::finish(Submitted& step) {
  const TransferTimes times = steps_.transfer_times(step.number);
  step.output.moved.offload_s += times.read_s;
  step.output.moved.load_s += times.write_s;
  if (step.drawn_places.empty() && step.targets.empty()) return;
  const std::span<const TokenDrawn> drawn = steps_.drawn(step.number);
  const std::span<const TokenScored> scored = steps_.scored(step.number);
  for (const std::size_t place : step.drawn_places)
    step.output.tokens[place] = drawn_token(drawn[place]);
  for (std::size_t i = 0; i < step.targets.size(); ++i) {
    const std::int32_t asked = step.scores[i].token;
    const auto place = static_cast<std::size_t>(-1 - asked);
    if (asked < 0 && !step.output.tokens[place].token) continue;
    try {
      *step.targets[i] = logprob_of(scored[i], TokenId{asked < 0 ? drawn[place].token : asked});
    } catch (const std::bad_alloc&) {
      if (asked < 0) step.output.tokens[place] = {.out_of_memory = true};
    }
  }
}

}  // namespace quire
