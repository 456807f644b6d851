#include "core/sched/policy/parking.h"

#include <algorithm>

namespace quire {

bool Parking::parks(const Pass& pass, Sequence& sequence, const PrefixMatch& match) {
  if (!kv_.prefix_caching()) return false;
  const Place place = kv_.skips_tokens() ? behind_block(pass, sequence, match) : behind_state(pass, sequence, match);
  if (place.behind == nullptr) return false;
  waiting_.park(sequence, *place.behind, place.until);
  return true;
}

Parking::Place Parking::behind_block(const Pass& pass, const Sequence& sequence, const PrefixMatch& match) const {
  const std::int64_t position = (std::int64_t{sequence.table.num_entered} + match.num_blocks) * kv_.block_size();
  const std::int64_t useful = std::min<std::int64_t>(kv_.block_size(), sequence.prefix_limit() - position);
  if (useful <= match.num_partial_tokens) return {};
  for (const PromptShare& share : pass.prompts) {
    const Sequence& other = *share.sequence;
    if (other.prompt_computed() || other.table.node != match.node) continue;
    const std::int64_t begin = std::int64_t{other.table.num_entered} * kv_.block_size();
    if (other.num_tokens() - begin < useful) continue;
    const auto wanted = sequence.tokens.begin() + position;
    if (std::equal(wanted, wanted + useful, other.tokens.begin() + begin))
      return {share.sequence, alike_until(sequence, other)};
  }
  return {};
}

std::int64_t Parking::alike_until(const Sequence& sequence, const Sequence& other) const {
  const std::int64_t limit = std::min(sequence.prefix_limit(), other.num_tokens());
  const std::int64_t known = std::min(other.num_computed, limit);
  const auto differs =
      std::mismatch(sequence.tokens.begin() + known, sequence.tokens.begin() + limit, other.tokens.begin() + known);
  return kv_.blocks_for(differs.first - sequence.tokens.begin()) * kv_.block_size();
}

// With recurrent layers, the shared tokens end at a border, where the state is kept.
Parking::Place Parking::behind_state(const Pass& pass, const Sequence& sequence, const PrefixMatch& match) const {
  if (!kv_.can_admit()) return {};
  const std::int64_t found = kv_.match_tokens(match);
  for (const PromptShare& share : pass.prompts) {
    const Sequence& other = *share.sequence;
    if (other.table.root != sequence.table.root) continue;
    const std::int64_t least = std::max(other.num_computed, found);
    for (auto border = other.borders.rbegin(); border != other.borders.rend() && *border > least; ++border) {
      if (*border > sequence.prefix_limit()) continue;
      if (std::equal(other.tokens.begin(), other.tokens.begin() + *border, sequence.tokens.begin()))
        return {share.sequence, *border};
    }
  }
  return {};
}

}  // namespace quire
