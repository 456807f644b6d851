#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/sampling/dry.h"
#include "core/sampling/mask.h"
#include "core/sampling/sampler.h"
#include "core/sampling/softmax.h"

namespace quire {

namespace {

void ban(std::span<float> logits, TokenId token) {
  if (token.value >= 0 && static_cast<std::size_t>(token.value) < logits.size()) {
    logits[static_cast<std::size_t>(token.value)] = kMinusInfinity;
  }
}

// Whether `generated` ends with all of the word but its last token.
bool nears(const std::vector<TokenId>& word, std::span<const TokenId> generated) {
  if (word.empty() || word.size() - 1 > generated.size()) return false;
  const auto begun = generated.last(word.size() - 1);
  return std::equal(begun.begin(), begun.end(), word.begin());
}

bool is_in(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

bool penalizes(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F || params.presence_penalty != 0.0F;
}

// The window is counted again at each token: it is short, and tokens that leave it would have to be subtracted.
bool counts_needed(const SamplingParams& params) {
  return penalizes(params) && !params.penalty_last_n;
}

}  // namespace

SamplerState::SamplerState(const SamplingParams& params, std::span<const TokenId> prompt,
                           std::span<const TokenId> end_of_generation, std::int64_t vocab_size, std::uint64_t seed,
                           std::int32_t choice)
    : params_(params),
      ends_(end_of_generation.begin(), end_of_generation.end()),
      seed_(seed),
      choice_(choice),
      num_counted_(prompt.size()),
      surprise_bound_(2.0F * params.mirostat.tau) {
  if (params.adaptive.target >= 0.0F) {  // as if the target had been met so far
    drawn_total_ = 1.0F / (1.0F - params.adaptive.decay);
    drawn_weight_ = params.adaptive.target * drawn_total_;
  }
  if (!params.allowed_token_ids.empty()) {
    allowed_.assign(static_cast<std::size_t>((vocab_size + 31) / 32), 0);
    for (const TokenId token : params.allowed_token_ids) {
      if (token.value < 0 || token.value >= vocab_size) continue;
      allowed_[static_cast<std::size_t>(token.value) / 32] |= 1U << (static_cast<std::uint32_t>(token.value) % 32);
    }
  }
  if (counts_needed(params)) {
    std::vector<std::int32_t> ids;
    for (const TokenId token : prompt)
      ids.push_back(token.value);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const auto most_new = static_cast<std::size_t>(std::clamp<std::int64_t>(params.max_tokens, 0, vocab_size));
    counts_.reserve(ids.size() + most_new);  // all that there can be, so that counting allocates nothing
    for (const std::int32_t id : ids)
      counts_.push_back({id, 0});
  }
}

void SamplerState::append(TokenId token) {
  ++num_counted_;
  if (!counts_needed(params_)) return;
  const auto place = std::ranges::lower_bound(counts_, token.value, {}, [](const Count& count) { return count.token; });
  if (place != counts_.end() && place->token == token.value) {
    ++place->num_generated;
  } else {
    counts_.insert(place, {token.value, 1});
  }
}

void SamplerState::observe(float observed) {
  if (params_.mirostat.version != 0) {
    surprise_bound_ -= params_.mirostat.eta * (observed - params_.mirostat.tau);
    return;
  }
  drawn_weight_ = observed + params_.adaptive.decay * drawn_weight_;
  drawn_total_ = 1.0F + params_.adaptive.decay * drawn_total_;
}

void SamplerState::apply(std::span<float> logits, std::span<const TokenId> tokens, std::int64_t num_prompt_tokens,
                         Scratch& scratch) const {
  apply_limits(logits, tokens, num_prompt_tokens);
  apply_penalties(logits, tokens, scratch);
  apply_dry(logits, tokens, scratch);
}

void SamplerState::apply_limits(std::span<float> logits, std::span<const TokenId> tokens,
                                std::int64_t num_prompt_tokens) const {
  if (!allowed_.empty()) apply_mask(logits, allowed_);
  apply_bans(logits, tokens.subspan(static_cast<std::size_t>(num_prompt_tokens)));
  for (const auto& [token, bias] : params_.logit_bias) {
    if (token.value >= 0 && static_cast<std::size_t>(token.value) < logits.size()) {
      logits[static_cast<std::size_t>(token.value)] += bias;
    }
  }
}

void SamplerState::apply_penalties(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const {
  if (params_.penalty_last_n && penalizes(params_)) {
    const auto wanted = static_cast<std::uint32_t>(*params_.penalty_last_n);  // -1: more than there can be
    apply_window_penalties(logits, tokens.last(std::min<std::size_t>(wanted, tokens.size())), scratch);
  } else if (counts_needed(params_)) {
    apply_counted_penalties(logits, tokens.subspan(std::min(num_counted_, tokens.size())), scratch);
  }
}

void SamplerState::apply_dry(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const {
  for (const DryPenalty& dry : dry_penalties(params_.dry, tokens, scratch.dry)) {
    if (static_cast<std::size_t>(dry.token.value) < logits.size()) {
      logits[static_cast<std::size_t>(dry.token.value)] -= dry.penalty;
    }
  }
}

void SamplerState::apply_bans(std::span<float> logits, std::span<const TokenId> generated) const {
  if (keeps_ends_away(generated)) {
    for (const TokenId token : ends_)
      ban(logits, token);
    for (const TokenId token : params_.stop_token_ids)
      ban(logits, token);
  }
  for (const auto& word : params_.bad_words) {
    if (nears(word, generated)) ban(logits, word.back());
  }
}

bool SamplerState::keeps_ends_away(std::span<const TokenId> generated) const {
  return std::cmp_less(generated.size(), params_.min_tokens);
}

bool SamplerState::forbids(TokenId token, std::span<const TokenId> generated) const {
  const auto bit = static_cast<std::uint32_t>(token.value);
  if (!allowed_.empty() && (bit / 32 >= allowed_.size() || ((allowed_[bit / 32] >> (bit % 32)) & 1U) == 0)) return true;
  if (keeps_ends_away(generated) && (is_in(ends_, token) || is_in(params_.stop_token_ids, token))) return true;
  return std::any_of(params_.bad_words.begin(), params_.bad_words.end(),
                     [&](const auto& word) { return nears(word, generated) && word.back() == token; });
}

void SamplerState::penalize(float& logit, std::int32_t count) const {
  if (params_.repetition_penalty != 1.0F) {
    logit = logit > 0.0F ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  }
  if (count == 0) return;
  logit -= params_.frequency_penalty * static_cast<float>(count);
  logit -= params_.presence_penalty;
}

// `drafts` follow what was counted, as if they had been generated.
void SamplerState::apply_counted_penalties(std::span<float> logits, std::span<const TokenId> drafts,
                                           Scratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.window;
  ids.clear();
  for (const TokenId token : drafts)
    ids.push_back(token.value);
  std::sort(ids.begin(), ids.end());
  const auto penalize_token = [&](std::int32_t token, std::int32_t num_generated) {
    if (token >= 0 && static_cast<std::size_t>(token) < logits.size())
      penalize(logits[static_cast<std::size_t>(token)], num_generated);
  };
  auto next = ids.begin();
  const auto take_drafted = [&](auto begin) {
    next = std::upper_bound(begin, ids.end(), *begin);
    return static_cast<std::int32_t>(next - begin);
  };
  for (const auto& [token, num_generated] : counts_) {
    while (next != ids.end() && *next < token) {
      const std::int32_t drafted = *next;
      penalize_token(drafted, take_drafted(next));
    }
    const bool is_drafted = next != ids.end() && *next == token;
    penalize_token(token, num_generated + (is_drafted ? take_drafted(next) : 0));
  }
  while (next != ids.end()) {
    const std::int32_t drafted = *next;
    penalize_token(drafted, take_drafted(next));
  }
}

void SamplerState::apply_window_penalties(std::span<float> logits, std::span<const TokenId> window,
                                          Scratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.window;
  ids.clear();
  for (const TokenId token : window) {
    if (token.value >= 0 && static_cast<std::size_t>(token.value) < logits.size()) ids.push_back(token.value);
  }
  std::sort(ids.begin(), ids.end());
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto end = std::upper_bound(begin, ids.end(), *begin);
    penalize(logits[static_cast<std::size_t>(*begin)], static_cast<std::int32_t>(end - begin));
    begin = end;
  }
}

}  // namespace quire
