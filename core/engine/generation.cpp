#include "core/engine/generation.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

Error too_costly() {
  return {ErrorKind::kInvalidRequest,
          "The request's grammar is too ambiguous: following it would hold up other requests.",
          "grammar_too_costly",
          {},
          {}};
}

}  // namespace

// Wants all rows for prompt logprobs, a mean and single vectors; the first token's row for CLS; else the last
// row.
WantedRows Generation::wanted_rows(std::int64_t num_tokens, bool ends) const {
  const Pooling pooling = request->pooling;
  const PooledOutput output = request->pooled_output;
  auto of = output == PooledOutput::kLabels ? WantedRows::Of::kLabels : WantedRows::Of::kHidden;
  if (pooling == Pooling::kNone || output == PooledOutput::kTokenLogprobs) of = WantedRows::Of::kLogits;
  const bool scores_prompt = !prompt_logprobs.empty() && num_computed < num_prompt_tokens;
  if (scores_prompt || pooling == Pooling::kMean || pooling == Pooling::kEach) return {of, 0, num_tokens};
  if (pooling == Pooling::kCls) return {of, 0, num_computed == 0 ? 1 : 0};
  return {of, num_tokens - 1, ends ? 1 : 0};
}

bool Generation::fill_mask(std::span<std::uint32_t> mask) {
  if (grammar == nullptr) return false;
  if (!forced.empty() && forbids(forced.back())) forced.clear();
  if (forced.empty()) {
    grammar->fill_mask(mask);
  } else {
    allow_only(forced.back(), mask);
  }
  return true;
}

void Generation::add_hidden(std::span<const float> rows, std::size_t width, std::int64_t first_position) {
  for (std::size_t begin = 0; begin < rows.size(); begin += width, ++first_position) {
    if (first_position < num_pooled) continue;
    const bool each = request->pooling == Pooling::kEach;
    const std::size_t at = each ? pooled.size() : 0;
    pooled.resize(at + width, 0.0);
    for (std::size_t j = 0; j < width; ++j)
      pooled[at + j] += static_cast<double>(rows[begin + j]);
    ++num_pooled;
    max_cached_tokens = each || request->pooling == Pooling::kMean ? num_pooled : num_tokens();
  }
}

void Generation::add_prompt_logprob(std::int64_t position, std::optional<TokenLogprob> logprob) {
  if (!logprob) return fail(out_of_memory());
  prompt_logprobs.resize(static_cast<std::size_t>(position));
  prompt_logprobs.push_back(std::move(logprob));
  max_cached_tokens = position;
}

void Generation::add_scored_token(const std::optional<TokenLogprob>& scored) {
  if (!scored) return fail(out_of_memory());
  pooled.push_back(static_cast<double>(scored->logprob));
}

void Generation::take(DrawnToken& drawn, std::span<const TokenId> end_of_generation) {
  if (!first_token_at) {
    first_token_at = Clock::now();
    event.prompt_logprobs = std::move(prompt_logprobs);
    prompt_logprobs.clear();
    max_chunk = max_cached_tokens = kUnbounded;
  }
  if (!drawn.token) return fail(why_no_token(drawn));
  if (!forced.empty() && forced.back() != *drawn.token) forced.clear();  // the request forbids it
  if (!forced.empty()) forced.pop_back();
  if (drawn.observed) sampler.observe(*drawn.observed);
  append(*drawn.token, end_of_generation);
  const bool is_text = !finish || !finish->stop_token;
  if (drawn.logprob && is_text) event.logprobs.push_back(*std::move(drawn.logprob));
  append_forced(end_of_generation);
}

Error Generation::why_no_token(const DrawnToken& drawn) const {
  if (drawn.out_of_memory) return out_of_memory();
  if (drawn.has_no_numbers)
    return {ErrorKind::kInternal, "The model computed logits that are no numbers.", "model_failed", {}, {}};
  if (grammar != nullptr && grammar->exhausted()) return too_costly();
  return {
      ErrorKind::kInvalidRequest, "The request's constraints leave no token to generate.", "no_token_allowed", {}, {}};
}

// Appends one token, and decides whether it ends the generation.
void Generation::append(TokenId token, std::span<const TokenId> end_of_generation) {
  ++num_generated;
  if (is_stop_token(token, end_of_generation)) {
    finish = finish_info(FinishReason::kStop);
    finish->stop_token = token;
    return;
  }
  event.tokens.push_back(token);
  tokens.push_back(token);
  sampler.append(token);
  std::optional<FinishReason> reason;
  if (grammar != nullptr) {
    const bool accepted = grammar->accept(token);
    if (grammar->exhausted()) return fail(too_costly());
    if (!accepted || grammar->finished()) reason = FinishReason::kStop;
  }
  if (!reason && num_generated >= request->sampling.max_tokens) reason = FinishReason::kLength;
  if (reason) finish = finish_info(*reason);
}

// Appends tokens without a draw where the grammar permits only one. If logprobs are wanted, the token is drawn instead;
// the text is the same. A token that the request forbids is not forced: the text may have another spelling.
void Generation::append_forced(std::span<const TokenId> end_of_generation) {
  if (grammar == nullptr || finish || !forced.empty()) return;
  const std::span<const TokenId> following = grammar->forced_tokens();
  if (draws_forced()) {
    forced.assign(following.rbegin(), following.rend());
    return;
  }
  for (const TokenId token : following) {
    if (forbids(token)) return;
    append(token, end_of_generation);
    if (finish) return;
  }
}

bool Generation::note_progress(std::int64_t begin, std::int64_t num_rows) {
  if (choice != 0 || num_generated > 0 || begin >= num_prompt_tokens) return false;
  const Clock::time_point now = Clock::now();
  event.progress = PromptProgress{std::min(begin + num_rows, num_prompt_tokens), now - live->started_at.value_or(now)};
  return true;
}

void Generation::finish_prompt() {
  event.prompt_logprobs = std::move(prompt_logprobs);
  const bool embeds = request->pooling != Pooling::kNone;
  finish = finish_info(embeds ? FinishReason::kStop : FinishReason::kLength);
  if (!embeds) return;
  const auto num_vectors = static_cast<std::size_t>(request->pooling == Pooling::kEach ? num_pooled : 1);
  const std::size_t width = pooled.size() / std::max<std::size_t>(num_vectors, 1);
  event.embedding.reserve(pooled.size());
  for (std::size_t i = 0; i < num_vectors; ++i) {
    const std::span<const double> vector = std::span(pooled).subspan(i * width, width);
    const double scale = pooled_scale(vector);
    for (const double value : vector)
      event.embedding.push_back(static_cast<float>(value * scale));
  }
}

// Factor that turns the sum of hidden states into the requested vector: the sum has the mean's direction.
double Generation::pooled_scale(std::span<const double> vector) const {
  if (request->pooled_output != PooledOutput::kUnitVector)
    return request->pooling == Pooling::kMean ? 1.0 / static_cast<double>(num_pooled) : 1.0;
  double square = 0.0;
  for (const double value : vector)
    square += value * value;
  return square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
}

void Generation::fail(SharedError error) noexcept {
  finish = finish_info(FinishReason::kError);
  finish->error = std::move(error);
}

FinishInfo Generation::finish_info(FinishReason reason) const {
  const Clock::time_point now = Clock::now();
  FinishInfo info{.reason = reason};
  info.num_prompt_tokens = static_cast<std::int32_t>(num_prompt_tokens);
  info.num_cached_tokens = static_cast<std::int32_t>(num_cached_tokens);
  info.num_generated_tokens = num_generated;
  info.num_preemptions = num_preemptions;
  const Clock::time_point started = live->started_at.value_or(now);
  const Clock::time_point first_token = first_token_at.value_or(now);
  info.queue_time = started - live->request->arrival;
  info.prefill_time = first_token - started;
  info.decode_time = now - first_token;
  return info;
}

}  // namespace quire
