#include "core/grammar/machine/lengths.h"

#include <algorithm>

namespace quire::grammar {

namespace {

constexpr std::size_t kMaxWords = std::size_t{1} << 22;  // size of the table of lengths

std::vector<std::vector<std::uint32_t>> successors(const Dfa& dfa) {
  const std::size_t width = dfa.alphabet.num_classes();
  std::vector<std::vector<std::uint32_t>> result(dfa.num_states());
  for (std::size_t state = 1; state < dfa.num_states(); ++state) {
    auto& list = result[state];
    for (std::size_t k = 1; k < width; ++k) {
      if (dfa.next[state * width + k] != 0) list.push_back(dfa.next[state * width + k]);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return result;
}

// Whether each length from the shortest on is reachable from every live state: true for a state that loops to itself,
// and for a state whose next step leads to such a state without a gap.
bool all_dense(const std::vector<std::vector<std::uint32_t>>& next, const std::vector<std::uint32_t>& shortest,
               Budget& budget) {
  std::vector<bool> dense(next.size(), false);
  std::size_t missing = 0;
  for (std::uint32_t state = 1; state < next.size(); ++state) {
    if (shortest[state] == Lengths::kEndless) continue;
    dense[state] = std::find(next[state].begin(), next[state].end(), state) != next[state].end();
    if (!dense[state]) ++missing;
  }
  for (bool changed = true; changed && missing > 0;) {
    changed = false;
    for (std::size_t state = next.size(); state-- > 1;) {
      if (dense[state] || shortest[state] == Lengths::kEndless) continue;
      budget.spend(next[state].size());
      const std::uint32_t wanted = shortest[state] == 0 ? 0 : shortest[state] - 1;
      dense[state] = std::any_of(next[state].begin(), next[state].end(),
                                 [&](std::uint32_t target) { return dense[target] && shortest[target] == wanted; });
      if (!dense[state]) continue;
      --missing;
      changed = true;
    }
  }
  return missing == 0;
}

}  // namespace

Lengths::Lengths(const Dfa& dfa, std::uint32_t max, Budget& budget) {
  const auto next = successors(dfa);
  Edges sources(dfa.num_states());
  for (std::uint32_t state = 1; state < dfa.num_states(); ++state) {
    for (const std::uint32_t target : next[state])
      sources[target].push_back(state);
    budget.spend(1 + next[state].size());
  }
  find_shortest(dfa, sources);
  find_longest(next, sources);
  dense_ = all_dense(next, shortest_, budget);
  if (!dense_ && max != kEndless) find_all(dfa, next, max, budget);
}

void Lengths::find_shortest(const Dfa& dfa, const Edges& sources) {
  shortest_.assign(dfa.num_states(), kEndless);
  std::vector<std::uint32_t> queue;
  for (std::uint32_t state = 1; state < dfa.num_states(); ++state) {
    if (dfa.accept[state] == 0) continue;
    shortest_[state] = 0;
    queue.push_back(state);
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t source : sources[queue[i]]) {
      if (shortest_[source] != kEndless) continue;
      shortest_[source] = shortest_[queue[i]] + 1;
      queue.push_back(source);
    }
  }
}

// States that do not reach a cycle have a longest completion: peels them off from the ends.
void Lengths::find_longest(const Edges& next, const Edges& sources) {
  longest_.assign(next.size(), kEndless);
  std::vector<std::size_t> out_degree(next.size());
  std::vector<std::uint32_t> queue;
  for (std::uint32_t state = 1; state < next.size(); ++state) {
    out_degree[state] = next[state].size();
    if (next[state].empty()) queue.push_back(state);
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint32_t state = queue[i];
    longest_[state] = 0;
    for (const std::uint32_t target : next[state])
      longest_[state] = std::max(longest_[state], longest_[target] + 1);
    for (const std::uint32_t source : sources[state]) {
      if (--out_degree[source] == 0) queue.push_back(source);
    }
  }
}

void Lengths::find_all(const Dfa& dfa, const Edges& next, std::uint32_t max, Budget& budget) {
  const std::size_t n = next.size();
  num_words_ = max / 64 + 1;
  budget.spend(n * num_words_ + n * static_cast<std::size_t>(max) / 8);
  if (n * num_words_ > kMaxWords) throw Refusal("the pattern and the length bound are too large together");
  bits_.assign(n * num_words_, 0);
  std::vector<bool> now(n);
  for (std::size_t state = 0; state < n; ++state)
    now[state] = dfa.accept[state] != 0;
  for (std::uint32_t k = 0; k <= max; ++k) {
    std::vector<bool> further(n, false);
    for (std::size_t state = 1; state < n; ++state) {
      if (now[state]) bits_[state * num_words_ + k / 64] |= std::uint64_t{1} << k % 64;
      for (const std::uint32_t target : next[state]) {
        if (now[target]) further[state] = true;
      }
    }
    now.swap(further);
  }
}

bool Lengths::reachable(std::uint32_t state, std::uint32_t lo, std::uint32_t hi) const {
  if (state == 0 || shortest_[state] > hi || lo > hi) return false;
  if (longest_[state] != kEndless && longest_[state] < lo) return false;
  if (dense_ || hi == kEndless) return true;
  for (std::uint32_t k = lo; k <= hi; ++k) {
    if ((bits_[state * num_words_ + k / 64] >> k % 64 & 1) != 0) return true;
  }
  return false;
}

}  // namespace quire::grammar
