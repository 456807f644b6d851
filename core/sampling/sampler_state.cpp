#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/sampling/dry.h"
#include "core/sampling/sampler.h"
#include "core/sampling/softmax.h"
#include "kernels/step_ops.h"

namespace quire {

namespace {

// The logit of a token; null if there is none.
float* logit_of(std::span<float> logits, std::int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) return nullptr;
  return &logits[static_cast<std::size_t>(token)];
}

// Calls visit(id, count) for each of the sorted ids.
template <class Visit>
void visit_runs(std::span<const std::int32_t> ids, const Visit& visit) {
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto end = std::upper_bound(begin, ids.end(), *begin);
    visit(*begin, static_cast<std::int32_t>(end - begin));
    begin = end;
  }
}

// Whether `generated` ends with all tokens of the word but its last.
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

// A window is counted again at each token: it is short, and tokens that leave it would have to be subtracted.
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
  if (params.adaptive.target >= 0.0F) {  // starts as if the target had been met
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
    counts_.reserve(ids.size() + most_new);  // the most that can occur, so that counting allocates nothing
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
  visit_bans(tokens.subspan(static_cast<std::size_t>(num_prompt_tokens)), [&](TokenId token) {
    if (float* const logit = logit_of(logits, token.value)) *logit = kMinusInfinity;
  });
  for (const auto& [token, bias] : params_.logit_bias) {
    if (float* const logit = logit_of(logits, token.value)) *logit += bias;
  }
}

void SamplerState::apply_penalties(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const {
  visit_penalties(tokens, scratch.window, [&](std::int32_t token, std::int32_t count) {
    if (float* const logit = logit_of(logits, token)) penalize(*logit, count);
  });
}

void SamplerState::list_edits(std::span<const TokenId> tokens, std::int64_t num_prompt_tokens, std::int64_t vocab_size,
                              std::vector<std::int32_t>& window, std::vector<DrawEdit>& out) const {
  const auto begin = std::ssize(out);
  const auto add = [&](const DrawEdit& edit) {
    if (edit.token >= 0 && edit.token < vocab_size) out.push_back(edit);
  };
  visit_bans(tokens.subspan(static_cast<std::size_t>(num_prompt_tokens)),
             [&](TokenId token) { add({.token = token.value, .kind = DrawEdit::Kind::kBan}); });
  for (const auto& [token, bias] : params_.logit_bias)
    add({.token = token.value, .kind = DrawEdit::Kind::kAdd, .value = bias});
  const bool has_others = std::ssize(out) > begin;
  visit_penalties(tokens, window, [&](std::int32_t token, std::int32_t count) {
    add({.token = token, .kind = DrawEdit::Kind::kPenalise, .count = count});
  });
  if (has_others)
    std::stable_sort(out.begin() + begin, out.end(),
                     [](const DrawEdit& a, const DrawEdit& b) { return a.token < b.token; });
}

void SamplerState::apply_dry(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const {
  for (const DryPenalty& dry : dry_penalties(params_.dry, tokens, scratch.dry)) {
    if (static_cast<std::size_t>(dry.token.value) < logits.size()) {
      logits[static_cast<std::size_t>(dry.token.value)] -= dry.penalty;
    }
  }
}

template <class Ban>
void SamplerState::visit_bans(std::span<const TokenId> generated, const Ban& ban) const {
  if (keeps_ends_away(generated)) {
    std::ranges::for_each(ends_, ban);
    std::ranges::for_each(params_.stop_token_ids, ban);
  }
  for (const auto& word : params_.bad_words) {
    if (nears(word, generated)) ban(word.back());
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

// The tokens under penalty, ascending, with the number of times each was generated. Tokens after the counted ones are
// drafts, treated as generated.
template <class Penalise>
void SamplerState::visit_penalties(std::span<const TokenId> tokens, std::vector<std::int32_t>& ids,
                                   const Penalise& penalise) const {
  if (!penalizes(params_)) return;
  const bool in_window = params_.penalty_last_n.has_value();
  const auto wanted = static_cast<std::uint32_t>(params_.penalty_last_n.value_or(0));  // -1 becomes the largest number
  const auto listed = in_window ? tokens.last(std::min<std::size_t>(wanted, tokens.size()))
                                : tokens.subspan(std::min(num_counted_, tokens.size()));
  ids.clear();
  for (const TokenId token : listed)
    ids.push_back(token.value);
  std::sort(ids.begin(), ids.end());
  if (in_window) return visit_runs(ids, penalise);
  auto next = ids.begin();
  const auto take_drafted = [&] {
    const auto begin = next;
    next = std::upper_bound(begin, ids.end(), *begin);
    return static_cast<std::int32_t>(next - begin);
  };
  for (const auto& [token, num_generated] : counts_) {
    while (next != ids.end() && *next < token) {
      const std::int32_t drafted = *next;
      penalise(drafted, take_drafted());
    }
    const bool is_drafted = next != ids.end() && *next == token;
    penalise(token, num_generated + (is_drafted ? take_drafted() : 0));
  }
  visit_runs(std::span<const std::int32_t>(next, ids.end()), penalise);
}

}  // namespace quire
