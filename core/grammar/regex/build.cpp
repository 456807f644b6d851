#include "core/grammar/regex/regex.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/grammar/regex/nfa.h"

namespace quire::grammar {

namespace {

using StateSet = std::vector<std::uint32_t>;

struct HashSet {
  std::size_t operator()(const StateSet& set) const {
    std::size_t hash = set.size();
    for (const std::uint32_t state : set)
      hash = hash * 0x9E3779B97F4A7C15ull + state + 1;
    return hash;
  }
};

class Subsets {
 public:
  Subsets(const Nfa& nfa, Budget& budget) : nfa_(nfa), budget_(budget), mark_(nfa.states().size(), 0) {
    index_sets();
    dfa_.alphabet = alphabet_;
    sets_.emplace_back();  // the dead state
    ends_.emplace_back();
  }

  std::uint32_t start(std::uint32_t state, std::uint32_t end) { return intern(closure({state}, true, false), end); }

  // Expands every state; call edges are kept per state if there are any.
  Dfa finish() {
    const std::size_t width = alphabet_.num_classes();
    for (std::size_t state = 0; state < sets_.size(); ++state) {
      if (sets_.size() > budget_.limits().max_automaton_states ||
          sets_.size() * width > budget_.limits().max_automaton_cells) {
        throw Refusal("the pattern is too complex");
      }
      expand(state, width);
    }
    const bool has_calls =
        std::any_of(dfa_.calls.begin(), dfa_.calls.end(), [](const auto& calls) { return !calls.empty(); });
    if (!has_calls) dfa_.calls.clear();
    return std::move(dfa_);
  }

 private:
  // Equal sets share their classes: a grammar repeats few sets many times.
  void index_sets() {
    std::map<std::vector<std::uint64_t>, std::uint32_t> known;
    std::vector<const CharSet*> distinct;
    for (const CharSet& set : nfa_.sets()) {
      std::vector<std::uint64_t> key;
      for (const CodeRange& range : set.ranges())
        key.push_back(static_cast<std::uint64_t>(range.lo) << 32 | range.hi);
      const auto [found, fresh] = known.try_emplace(std::move(key), static_cast<std::uint32_t>(distinct.size()));
      if (fresh) distinct.push_back(&set);
      set_ids_.push_back(found->second);
      budget_.spend(1 + set.ranges().size());
    }
    alphabet_ = Alphabet(distinct);
    for (const CharSet* set : distinct) {
      classes_.push_back(alphabet_.classes_in(*set));
      budget_.spend(classes_.back().size());
    }
  }

  StateSet closure(StateSet work, bool at_begin, bool at_end) {
    StateSet result;
    ++epoch_;
    while (!work.empty()) {
      const std::uint32_t id = work.back();
      work.pop_back();
      if (mark_[id] == epoch_) continue;
      mark_[id] = epoch_;
      const Nfa::State& state = nfa_.states()[id];
      if (state.edge != Nfa::Edge::kEpsilon) result.push_back(id);
      const bool passes = state.edge == Nfa::Edge::kEpsilon || (state.edge == Nfa::Edge::kBegin && at_begin) ||
                          (state.edge == Nfa::Edge::kEnd && at_end);
      if (!passes) continue;
      work.push_back(state.target);
      if (state.has_second) work.push_back(state.second);
    }
    budget_.spend(1 + result.size());
    std::sort(result.begin(), result.end());
    return result;
  }

  std::uint32_t intern(StateSet set, std::uint32_t end) {
    if (set.empty()) return 0;
    set.push_back(end);  // sets of different rules stay apart
    const auto [found, fresh] = known_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
    if (fresh) {
      set.pop_back();
      sets_.push_back(std::move(set));
      ends_.push_back(end);
    }
    return found->second;
  }

  void expand(std::size_t state, std::size_t width) {
    const StateSet set = sets_[state];
    const std::uint32_t end = ends_[state];
    std::vector<StateSet> targets(width);
    std::map<std::uint32_t, StateSet> called;
    for (const std::uint32_t id : set) {
      const Nfa::State& from = nfa_.states()[id];
      if (from.edge == Nfa::Edge::kCall) called[from.value].push_back(from.target);
      if (from.edge != Nfa::Edge::kSet) continue;
      const auto& classes = classes_[set_ids_[from.value]];
      budget_.spend(classes.size());
      for (const std::uint32_t k : classes)
        targets[k].push_back(from.target);
    }
    const StateSet ended = closure(set, false, true);
    dfa_.accept.push_back(state != 0 && std::find(ended.begin(), ended.end(), end) != ended.end() ? 1 : 0);
    std::map<StateSet, std::uint32_t> same;  // classes often lead to the same set
    for (std::size_t k = 0; k < width; ++k) {
      if (targets[k].empty()) {
        dfa_.next.push_back(0);
        continue;
      }
      const auto [found, fresh] = same.try_emplace(targets[k], 0);
      if (fresh) found->second = intern(closure(targets[k], false, false), end);
      dfa_.next.push_back(found->second);
    }
    dfa_.calls.emplace_back();
    for (auto& [symbol, set_after] : called) {
      dfa_.calls.back().push_back({symbol, intern(closure(std::move(set_after), false, false), end)});
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  Alphabet alphabet_;
  std::vector<std::uint32_t> set_ids_;
  std::vector<std::vector<std::uint32_t>> classes_;
  std::vector<std::uint32_t> mark_;
  std::uint32_t epoch_ = 0;
  std::vector<StateSet> sets_;
  std::vector<std::uint32_t> ends_;
  std::unordered_map<StateSet, std::uint32_t, HashSet> known_;
  Dfa dfa_;
};

constexpr std::size_t kMinimiseUpTo = 400;  // states; beyond, the iterations cost more than the smaller automaton saves

Dfa build(const Expr& expression, Budget& budget) {
  Nfa nfa(budget);
  const std::uint32_t begin = nfa.add_state();
  const std::uint32_t body = nfa.add(*expression, begin);
  const std::uint32_t end = nfa.add_state();
  nfa.add_epsilon(body, end);
  Subsets subsets(nfa, budget);
  const std::uint32_t start = subsets.start(begin, end);
  Dfa dfa = subsets.finish();
  dfa.start = start;
  dfa = trim(std::move(dfa));
  return dfa.num_states() <= kMinimiseUpTo ? minimise(dfa) : dfa;
}

}  // namespace

Dfa build_full(const Expr& expression, Budget& budget) {
  return build(resolve_ahead(expression, make_empty(), budget), budget);
}

Dfa build_search(const Expr& expression, Budget& budget) {
  const Expr anything = make_repeat(make_set(CharSet::any()), 0, kUnbounded);
  return build(make_concat({anything, resolve_ahead(expression, anything, budget)}), budget);
}

Dfa build_rules(std::span<const Expr> rules, std::vector<bool>& live, std::vector<std::uint32_t>& starts,
                Budget& budget) {
  Nfa nfa(budget);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;
  for (std::uint32_t rule = 0; rule < rules.size(); ++rule) {
    const std::uint32_t begin = nfa.add_state();
    const std::uint32_t body = nfa.add(*resolve_ahead(rules[rule], make_empty(), budget), begin);
    const std::uint32_t end = nfa.add_state();
    nfa.add_epsilon(body, end);
    nfa.loop_tail_calls(rule, begin, begin, end);
    ends.emplace_back(begin, end);
  }
  Subsets subsets(nfa, budget);
  starts.clear();
  for (const auto& [begin, end] : ends)
    starts.push_back(subsets.start(begin, end));
  Dfa dfa = subsets.finish();
  // A rule has text if its start reaches acceptance over rules that have text: grows the set until it is stable.
  for (std::size_t i = 0; i < rules.size(); ++i)
    live[i] = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (live[i]) continue;
      dfa.start = starts[i];
      budget.spend(dfa.next.size());
      if (trim(dfa, &live).empty()) continue;
      live[i] = true;
      changed = true;
    }
  }
  dfa = trim(std::move(dfa), &live);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (!live[i]) starts[i] = 0;
  }
  return dfa;
}

}  // namespace quire::grammar
