#include "core/grammar/regex/dfa.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace quire::grammar {

std::size_t Dfa::num_bytes() const {
  std::size_t num_edges = 0;
  for (const std::vector<CallEdge>& each : calls)
    num_edges += each.size();
  return sizeof(Dfa) + sizeof(std::uint32_t) * (next.size() + accept.size() + 2 * alphabet.starts().size()) +
         sizeof(CallEdge) * num_edges + sizeof(calls[0]) * calls.size();
}

bool Dfa::accepts(std::u32string_view text) const {
  std::uint32_t state = start;
  for (const char32_t c : text)
    state = step(state, c);
  return accept[state] != 0;
}

Dfa trim(Dfa dfa, const std::vector<bool>* calls_live) {
  const std::size_t n = dfa.num_states();
  const std::size_t width = dfa.alphabet.num_classes();
  std::vector<std::vector<std::uint32_t>> sources(n);
  for (std::uint32_t state = 1; state < n; ++state) {
    std::uint32_t last = 0;
    for (std::size_t k = 1; k < width; ++k) {
      const std::uint32_t target = dfa.next[state * width + k];
      if (target != 0 && target != last) sources[target].push_back(state);
      last = target;
    }
    if (dfa.calls.empty()) continue;
    for (const CallEdge& call : dfa.calls[state]) {
      if (calls_live == nullptr || (*calls_live)[call.symbol]) sources[call.target].push_back(state);
    }
  }
  std::vector<bool> live(n, false);
  std::vector<std::uint32_t> work;
  for (std::uint32_t state = 1; state < n; ++state) {
    if (dfa.accept[state] == 0) continue;
    live[state] = true;
    work.push_back(state);
  }
  while (!work.empty()) {
    const std::uint32_t state = work.back();
    work.pop_back();
    for (const std::uint32_t source : sources[state]) {
      if (live[source]) continue;
      live[source] = true;
      work.push_back(source);
    }
  }
  for (std::uint32_t& target : dfa.next) {
    if (!live[target]) target = 0;
  }
  for (auto& edges : dfa.calls) {
    std::erase_if(edges, [&](const CallEdge& call) {
      return !live[call.target] || (calls_live != nullptr && !(*calls_live)[call.symbol]);
    });
  }
  if (!live[dfa.start]) dfa.start = 0;
  return dfa;
}

namespace {

// The product of two automata over the pairs that are reachable; `accepts` decides from the two labels.
template <class Accepts>
Dfa product(const Dfa& a, const Dfa& b, Budget& budget, bool needs_both, Accepts accepts) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  Dfa result;
  result.alphabet = Alphabet::refine(a.alphabet, b.alphabet, pairs);
  const std::size_t width = pairs.size();
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> states{{0, 0}};
  const auto intern = [&](std::uint32_t left, std::uint32_t right) -> std::uint32_t {
    if (needs_both ? left == 0 || right == 0 : left == 0 && right == 0) return 0;
    const auto [found, fresh] = known.try_emplace(static_cast<std::uint64_t>(left) << 32 | right, states.size());
    if (fresh) states.emplace_back(left, right);
    return found->second;
  };
  result.start = intern(a.start, b.start);
  const std::size_t width_a = a.alphabet.num_classes();
  const std::size_t width_b = b.alphabet.num_classes();
  for (std::size_t state = 0; state < states.size(); ++state) {
    const auto [left, right] = states[state];
    budget.spend(width);
    if (states.size() > budget.limits().max_automaton_states ||
        states.size() * width > budget.limits().max_automaton_cells) {
      throw Refusal("the combination of patterns is too complex");
    }
    result.accept.push_back(state == 0 ? 0 : accepts(a.accept[left], b.accept[right]));
    result.next.push_back(0);
    for (std::size_t k = 1; k < width; ++k) {
      const auto target =
          state == 0 ? 0 : intern(a.next[left * width_a + pairs[k].first], b.next[right * width_b + pairs[k].second]);
      result.next.push_back(target);
    }
  }
  return trim(std::move(result));
}

}  // namespace

Dfa intersect(const Dfa& a, const Dfa& b, Budget& budget) {
  return product(a, b, budget, true, [](std::uint32_t x, std::uint32_t y) { return x != 0 && y != 0 ? 1u : 0u; });
}

Dfa unite(const Dfa& a, const Dfa& b, Budget& budget) {
  return product(a, b, budget, false, [](std::uint32_t x, std::uint32_t y) { return x != 0 || y != 0 ? 1u : 0u; });
}

Dfa complement(const Dfa& dfa) {
  Dfa result = dfa;
  const std::size_t width = dfa.alphabet.num_classes();
  const auto sink = static_cast<std::uint32_t>(dfa.num_states());
  for (std::size_t state = 1; state < dfa.num_states(); ++state) {
    result.accept[state] = dfa.accept[state] == 0 ? 1 : 0;
    for (std::size_t k = 1; k < width; ++k) {
      if (result.next[state * width + k] == 0) result.next[state * width + k] = sink;
    }
  }
  result.accept.push_back(1);
  result.next.push_back(0);
  for (std::size_t k = 1; k < width; ++k)
    result.next.push_back(sink);
  if (result.start == 0) result.start = sink;
  return trim(std::move(result));
}

Dfa any_text() {
  Dfa result;
  result.next = {0, 0, 0, 1};
  result.accept = {0, 1};
  result.start = 1;
  return result;
}

Dfa from_texts(std::span<const std::u32string> texts, Budget& budget) {
  std::vector<CharSet> sets;
  CharSet seen;
  for (const std::u32string& text : texts) {
    for (const char32_t c : text) {
      if (seen.contains(c)) continue;
      seen.add(c, c);
      sets.emplace_back(c, c);
    }
  }
  std::vector<const CharSet*> pointers;
  for (const CharSet& set : sets)
    pointers.push_back(&set);
  Dfa result;
  result.alphabet = Alphabet(pointers);
  const std::size_t width = result.alphabet.num_classes();
  result.next.assign(2 * width, 0);
  result.accept = {0, 0};
  result.start = 1;
  for (std::uint32_t i = 0; i < texts.size(); ++i) {
    std::size_t state = 1;
    budget.spend(texts[i].size() + 1);
    for (const char32_t c : texts[i]) {
      const std::size_t cell = state * width + result.alphabet.class_of(c);
      if (result.next[cell] == 0) {
        result.next[cell] = static_cast<std::uint32_t>(result.num_states());
        result.accept.push_back(0);
        result.next.resize(result.next.size() + width, 0);
        if (result.next.size() > budget.limits().max_automaton_cells) throw Refusal("the list of texts is too large");
      }
      state = result.next[cell];
    }
    if (result.accept[state] == 0) result.accept[state] = i + 1;
  }
  return trim(std::move(result));
}

Dfa minimise(const Dfa& dfa) {
  const std::size_t n = dfa.num_states();
  const std::size_t width = dfa.alphabet.num_classes();
  std::vector<std::uint32_t> block(dfa.accept.begin(), dfa.accept.end());
  for (std::size_t s = 1; s < n; ++s)
    ++block[s];  // keeps the dead state separate
  std::size_t num_blocks = 0;
  std::vector<std::vector<std::uint32_t>> keys(n);
  while (true) {
    std::map<std::vector<std::uint32_t>, std::uint32_t> known;
    std::vector<std::uint32_t> fresh(n);
    for (std::size_t s = 0; s < n; ++s) {
      std::vector<std::uint32_t> key{block[s]};
      for (std::size_t k = 0; k < width; ++k)
        key.push_back(block[dfa.next[s * width + k]]);
      fresh[s] = known.try_emplace(std::move(key), static_cast<std::uint32_t>(known.size())).first->second;
    }
    block = std::move(fresh);
    if (known.size() == num_blocks) break;
    num_blocks = known.size();
  }
  Dfa result;
  result.alphabet = dfa.alphabet;
  result.accept.assign(num_blocks, 0);
  result.next.assign(num_blocks * width, 0);
  for (std::size_t s = 0; s < n; ++s) {
    result.accept[block[s]] = dfa.accept[s];
    for (std::size_t k = 0; k < width; ++k)
      result.next[block[s] * width + k] = block[dfa.next[s * width + k]];
  }
  result.start = block[dfa.start];
  return result;
}

}  // namespace quire::grammar
