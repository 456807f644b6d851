#include "core/sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire {

namespace {

// Number of last tokens after the latest breaker: a repetition does not reach across one.
std::size_t unbroken_length(const DryParams& params, std::span<const TokenId> tokens) {
  for (std::size_t length = 0; length < tokens.size(); ++length) {
    const auto before = tokens.first(tokens.size() - length);
    for (const auto& breaker : params.breakers) {
      if (!breaker.empty() && breaker.size() <= before.size() &&
          std::equal(breaker.begin(), breaker.end(), before.end() - static_cast<std::ptrdiff_t>(breaker.size()))) {
        return length;
      }
    }
  }
  return tokens.size();
}

// Whether the token by itself ends a repetition, so that it cannot continue one.
bool is_breaker(const DryParams& params, TokenId token) {
  return std::any_of(params.breakers.begin(), params.breakers.end(),
                     [&](const auto& breaker) { return breaker.size() == 1 && breaker[0] == token; });
}

// lengths[d]: number of tokens, d tokens before the end, that equal the last ones (the Z function of the reversed
// text).
void find_repeat_lengths(std::span<const TokenId> tokens, std::vector<std::size_t>& lengths) {
  const std::size_t n = tokens.size();
  const auto reversed = [&](std::size_t i) { return tokens[n - 1 - i]; };
  lengths.assign(n, 0);
  std::size_t left = 0;
  std::size_t right = 0;
  for (std::size_t d = 1; d < n; ++d) {
    std::size_t length = d < right ? std::min(right - d, lengths[d - left]) : 0;
    while (d + length < n && reversed(length) == reversed(d + length))
      ++length;
    lengths[d] = length;
    if (d + length > right) {
      left = d;
      right = d + length;
    }
  }
}

}  // namespace

std::span<const DryPenalty> dry_penalties(const DryParams& params, std::span<const TokenId> tokens,
                                          DryScratch& scratch) {
  std::vector<DryPenalty>& found = scratch.found;
  found.clear();
  if (params.multiplier <= 0.0F) return found;
  if (params.penalty_last_n >= 0 && tokens.size() > static_cast<std::size_t>(params.penalty_last_n)) {
    tokens = tokens.last(static_cast<std::size_t>(params.penalty_last_n));
  }
  const std::size_t limit = unbroken_length(params, tokens);
  const auto allowed = static_cast<std::size_t>(std::max(params.allowed_length, 1));
  if (limit < allowed) return found;
  find_repeat_lengths(tokens, scratch.lengths);
  for (std::size_t d = 1; d < tokens.size(); ++d) {
    const std::size_t length = std::min(scratch.lengths[d], limit);
    const TokenId next = tokens[tokens.size() - d];
    if (length < allowed || is_breaker(params, next)) continue;
    const auto excess = static_cast<float>(length) - static_cast<float>(params.allowed_length);
    // The bound keeps the power finite; at the bound the token is excluded anyway.
    const float penalty = std::min(params.multiplier * std::pow(params.base, std::min(excess, 1000.0F)), 1e30F);
    found.push_back({next, penalty});
  }
  std::sort(found.begin(), found.end(), [](const DryPenalty& a, const DryPenalty& b) {
    return a.token != b.token ? a.token < b.token : a.penalty > b.penalty;
  });
  const auto same_token = [](const DryPenalty& a, const DryPenalty& b) { return a.token == b.token; };
  found.erase(std::unique(found.begin(), found.end(), same_token), found.end());
  return found;
}

}  // namespace quire
