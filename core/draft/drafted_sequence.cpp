#include "core/draft/drafted_sequence.h"

#include <algorithm>
#include <cmath>
#include <exception>

namespace quire {

namespace {

// Drafts below this probability of being reached are not proposed.
constexpr double kLeastProbability = 0.05;

// Number of drafts worth proposing if each is accepted with probability `rate`.
std::size_t useful_drafts(std::size_t most, double rate) {
  std::size_t count = 0;
  for (double reached = rate; count < most && reached >= kLeastProbability; reached *= rate)
    ++count;
  return count;
}

// Expected number of accepted drafts out of `count` if each is accepted with probability `rate`.
double expected_right(std::size_t count, double rate) {
  double expected = 0.0;
  for (double reached = rate; count > 0; --count, reached *= rate)
    expected += reached;
  return expected;
}

}  // namespace

void allow_only(TokenId token, std::span<std::uint32_t> mask) {
  const auto id = static_cast<std::uint32_t>(token.value);
  std::fill(mask.begin(), mask.end(), 0U);
  mask[id / 32] = 1U << (id % 32);
}

bool DraftedSequence::is_stop_token(TokenId token, std::span<const TokenId> end_of_generation) const {
  const SamplingParams& params = request->sampling;
  const auto is_in = [token](std::span<const TokenId> ends) {
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  };
  // A grammar allows the end token only if the text is complete: it then ends the generation even with ignore_eos.
  const bool eos_ends = !params.ignore_eos || grammar != nullptr;
  return (eos_ends && is_in(end_of_generation)) || is_in(params.stop_token_ids);
}

bool DraftedSequence::forbids(TokenId token) const {
  return sampler.forbids(token, std::span(tokens).subspan(static_cast<std::size_t>(num_prompt_tokens)));
}

// Only a sequence whose next step has a single row, its last token's, can be drafted.
bool DraftedSequence::can_draft() const {
  return draws() && num_generated > 0 && streams() && num_pending == 0 && forced.empty();
}

bool DraftedSequence::has_due_drafts() const {
  return std::ranges::any_of(drafting.acceptances,
                             [&](const DraftAcceptance& each) { return each.is_due(num_tokens()); });
}

// The draw after the last draft yields a token too.
std::int64_t DraftedSequence::most_drafts() const {
  const std::int64_t num_left = request->sampling.max_tokens - num_generated - 1;
  return can_draft() ? std::clamp<std::int64_t>(num_left, 0, drafting.max_tokens) : 0;
}

bool DraftedSequence::begin_rounds() {
  drafts.clear();
  drafting.forced = 0;
  drafting.proposed.clear();
  drafting.strength = DraftStrength::kStrong;
  const DraftAcceptance& acceptance = drafting.acceptance();
  draft_rate = acceptance.rate();
  drafting.most_proposed = acceptance.is_due(num_tokens())
                               ? useful_drafts(static_cast<std::size_t>(acceptance.most(most_drafts())), draft_rate)
                               : 0;
  return drafting.most_proposed > 0;
}

// An unlikely token ends the proposal. Proposed tokens are in `tokens` until the rounds end.
bool DraftedSequence::add_proposed(TokenId token, bool is_likely, std::span<const TokenId> end_of_generation) {
  if (drafting.proposed.size() >= drafting.most_proposed || is_stop_token(token, end_of_generation)) return false;
  drafting.proposed.push_back(token);
  tokens.push_back(token);
  return is_likely && drafting.proposed.size() < drafting.most_proposed;
}

void DraftedSequence::note_round(bool is_first, std::int64_t block_size) {
  if (!is_first) return drafting.rows.push_back(tokens.back());
  drafting.rows_blocks.assign(table.blocks.begin() + drafting.rows_begin / block_size, table.blocks.end());
  drafting.rows.assign(tokens.begin() + drafting.rows_begin, tokens.end());
  drafting.rows_preemptions = num_preemptions;
}

double DraftedSequence::reach() const {
  return std::pow(draft_rate, static_cast<double>(drafting.proposed.size() + 1));
}

void DraftedSequence::end_rounds(std::span<const TokenId> end_of_generation) {
  const auto num_known = num_tokens() - static_cast<std::int64_t>(drafting.proposed.size());
  forget_tokens_after(num_known);
  if (drafting.proposed.empty()) return drafting.acceptance().note_unused(num_known);
  try {
    keep_allowed_drafts(drafting.most_proposed, end_of_generation);
  } catch (const std::exception&) {
    drafts.clear();
    drafting.in_rounds = false;
  }
  forget_tokens_after(num_known);
}

double DraftedSequence::expected_drafts(std::int64_t& read_budget) {
  if (!drafting.is_on() || !has_due_drafts()) return 0.0;
  const std::int64_t num_left = request->sampling.max_tokens - num_generated - num_pending - 1;
  const bool can_follow = num_generated > 0 && forced.empty();
  const auto most =
      can_follow ? static_cast<std::size_t>(std::clamp<std::int64_t>(num_left, 0, drafting.max_tokens)) : 0;
  DraftStrength strength = DraftStrength::kStrong;
  if (!drafting.in_rounds) {
    try {
      strength = drafting.drafter->propose(tokens, most, read_budget, drafting.proposed);
    } catch (const std::exception&) {
      drafting.drafter.reset();
      return 0.0;
    }
    if (drafting.proposed.empty()) return 0.0;
  }
  const DraftAcceptance& acceptance = drafting.acceptances[static_cast<std::size_t>(strength)];
  if (!acceptance.is_due(num_tokens())) return 0.0;
  const auto allowed = static_cast<std::size_t>(acceptance.most(static_cast<std::int64_t>(most)));
  return expected_right(useful_drafts(allowed, acceptance.rate()), acceptance.rate());
}

void DraftedSequence::propose_drafts(std::int64_t& read_budget, std::span<const TokenId> end_of_generation) {
  drafts.clear();
  drafting.forced = 0;
  if (drafting.drafter == nullptr || !has_due_drafts()) return;
  const std::int64_t num_known = num_tokens();
  const std::int64_t most = most_drafts();
  try {
    const DraftStrength strength =
        drafting.drafter->propose(tokens, static_cast<std::size_t>(most), read_budget, drafting.proposed);
    const DraftAcceptance& acceptance = drafting.acceptances[static_cast<std::size_t>(strength)];
    if (drafting.proposed.empty() || !acceptance.is_due(num_tokens())) return;
    drafting.strength = strength;
    draft_rate = acceptance.rate();
    keep_allowed_drafts(useful_drafts(static_cast<std::size_t>(acceptance.most(most)), draft_rate), end_of_generation);
  } catch (const std::exception&) {
    drafts.clear();
    drafting.drafter.reset();
  }
  forget_tokens_after(num_known);
}

void DraftedSequence::forget_tokens_after(std::int64_t num_kept) {
  if (num_kept < num_tokens()) tokens.erase(tokens.begin() + num_kept, tokens.end());
}

// Appends the drafts to `tokens`, by which constraints are judged. Takes proposed tokens until one is forbidden or ends
// the sequence. Text that the grammar forces replaces the proposed tokens in its place.
void DraftedSequence::keep_allowed_drafts(std::size_t most, std::span<const TokenId> end_of_generation) {
  if (grammar != nullptr) begin_lookahead();
  bool as_proposed = true;
  while (drafts.size() < most) {
    std::vector<TokenId>& ahead = drafting.forced_ahead;
    const bool is_forced = !ahead.empty() && !forbids(ahead.back());
    if (!is_forced) ahead.clear();
    if (!is_forced && (!as_proposed || drafts.size() == drafting.proposed.size())) break;
    const TokenId next = is_forced ? ahead.back() : drafting.proposed[drafts.size()];
    as_proposed = as_proposed && drafts.size() < drafting.proposed.size() && drafting.proposed[drafts.size()] == next;
    if (is_forced && !draws_forced()) drafting.forced |= 1U << drafts.size();
    if (!keep_draft(next, end_of_generation)) break;
  }
}

bool DraftedSequence::keep_draft(TokenId token, std::span<const TokenId> end_of_generation) {
  if (is_stop_token(token, end_of_generation) || forbids(token)) return false;
  if (grammar != nullptr && !look_over(token)) return false;
  drafts.push_back(token);
  tokens.push_back(token);
  return true;
}

void DraftedSequence::begin_lookahead() {
  if (drafting.grammar == nullptr) drafting.grammar = request->grammar->start();
  drafting.grammar->assign(*grammar);
  drafting.forced_ahead.clear();
}

bool DraftedSequence::look_over(TokenId draft) {
  GrammarState& ahead = *drafting.grammar;
  std::vector<TokenId>& forced_ahead = drafting.forced_ahead;
  const bool was_forced = !forced_ahead.empty();
  if (was_forced) forced_ahead.pop_back();
  if (!ahead.accept(draft) || ahead.exhausted() || ahead.finished()) return false;
  // Forced text is looked up once after each drawn token, in the manner of append_forced().
  if (!forced_ahead.empty() || (was_forced && !draws_forced())) return true;
  const std::span<const TokenId> following = ahead.forced_tokens();
  forced_ahead.assign(following.rbegin(), following.rend());
  return true;
}

bool DraftedSequence::fill_mask_ahead(std::int64_t num_tokens, std::span<std::uint32_t> mask) {
  const auto first = static_cast<std::size_t>(num_prompt_tokens);
  const auto generated = std::span(tokens).subspan(first, static_cast<std::size_t>(num_tokens) - first);
  std::vector<TokenId>& forced_ahead = drafting.forced_ahead;
  if (!forced_ahead.empty() && sampler.forbids(forced_ahead.back(), generated)) forced_ahead.clear();
  if (!forced_ahead.empty()) {
    allow_only(forced_ahead.back(), mask);
    return true;
  }
  drafting.grammar->fill_mask(mask);
  return !drafting.grammar->exhausted();
}

}  // namespace quire
