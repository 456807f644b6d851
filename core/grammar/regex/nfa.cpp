#include "core/grammar/regex/nfa.h"

#include <algorithm>

#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

std::uint32_t Nfa::add_state() {
  budget_.spend(1);
  if (states_.size() >= 4 * budget_.limits().max_automaton_states) throw Refusal("the pattern is too large");
  states_.emplace_back();
  return static_cast<std::uint32_t>(states_.size() - 1);
}

// A state has one edge, or two epsilon edges; further ones go through a chain of states.
void Nfa::epsilon(std::uint32_t from, std::uint32_t to) {
  State& state = states_[from];
  if (state.edge == Edge::kNone) {
    state.edge = Edge::kEpsilon;
    state.target = to;
  } else if (state.edge == Edge::kEpsilon && !state.has_second) {
    state.second = to;
    state.has_second = true;
  } else {
    const std::uint32_t moved = add_state();
    states_[moved] = states_[from];
    states_[from] = State{Edge::kEpsilon, moved, to, true, 0};
  }
}

bool Nfa::leads_only_to(std::uint32_t from, std::uint32_t end) const {
  std::vector<std::uint32_t> work{from};
  std::vector<std::uint32_t> seen;
  while (!work.empty()) {
    const std::uint32_t at = work.back();
    work.pop_back();
    if (at == end || std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
    seen.push_back(at);
    if (states_[at].edge != Edge::kEpsilon || seen.size() > 64) return false;
    work.push_back(states_[at].target);
    if (states_[at].has_second) work.push_back(states_[at].second);
  }
  return true;
}

void Nfa::loop_tail_calls(std::uint32_t rule, std::uint32_t first, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t id = first; id < states_.size(); ++id) {
    State& state = states_[id];
    if (state.edge != Edge::kCall || state.value != rule || !leads_only_to(state.target, end)) continue;
    state = State{Edge::kEpsilon, begin, 0, false, 0};
  }
}

std::uint32_t Nfa::split(std::uint32_t from) {
  const std::uint32_t fresh = add_state();
  epsilon(from, fresh);
  return fresh;
}

std::uint32_t Nfa::add(const Expression& expression, std::uint32_t from, std::size_t depth) {
  if (depth > 4 * budget_.limits().max_depth) throw Refusal("the pattern nests too deeply");
  const auto single = [&](Edge edge, std::uint32_t value) {
    const std::uint32_t source = split(from);
    const std::uint32_t target = add_state();
    states_[source] = State{edge, target, 0, false, value};
    return target;
  };
  switch (expression.kind) {
    case Expression::Kind::kEmpty: return from;
    case Expression::Kind::kSet:
      sets_.push_back(expression.set);
      return single(Edge::kSet, static_cast<std::uint32_t>(sets_.size() - 1));
    case Expression::Kind::kBegin: return single(Edge::kBegin, 0);
    case Expression::Kind::kEnd: return single(Edge::kEnd, 0);
    case Expression::Kind::kCall: return single(Edge::kCall, expression.call);
    case Expression::Kind::kConcat:
      for (const Expr& child : expression.children)
        from = add(*child, from, depth + 1);
      return from;
    case Expression::Kind::kAlternate: {
      const std::uint32_t end = add_state();
      for (const Expr& child : expression.children)
        epsilon(add(*child, split(from), depth + 1), end);
      return split(end);
    }
    case Expression::Kind::kRepeat: return add_repeat(expression, from, depth + 1);
    case Expression::Kind::kAutomaton: return add_automaton(*expression.dfa, from);
    case Expression::Kind::kWordEdge: throw Refusal("word boundaries (\\b) in a regex are not supported");
    case Expression::Kind::kAhead: throw Refusal("look-ahead at this place of a regex is not supported");
  }
  return from;
}

std::uint32_t Nfa::add_repeat(const Expression& expression, std::uint32_t from, std::size_t depth) {
  const Expression& child = *expression.children.front();
  for (std::uint32_t i = 0; i < expression.min; ++i)
    from = add(child, split(from), depth);
  if (expression.max == kUnbounded) {
    const std::uint32_t loop = split(from);
    const std::uint32_t end = add_state();
    epsilon(add(child, split(loop), depth), loop);
    epsilon(loop, end);
    return end;
  }
  const std::uint32_t end = add_state();
  for (std::uint32_t i = expression.min; i < expression.max; ++i) {
    from = split(from);
    epsilon(from, end);
    from = add(child, split(from), depth);
  }
  epsilon(from, end);
  return end;
}

std::uint32_t Nfa::add_automaton(const Dfa& dfa, std::uint32_t from) {
  const std::uint32_t end = add_state();
  if (dfa.empty()) return end;
  const std::size_t width = dfa.alphabet.num_classes();
  std::vector<std::uint32_t> mapped(dfa.num_states());
  for (std::uint32_t state = 1; state < dfa.num_states(); ++state)
    mapped[state] = add_state();
  std::vector<CharSet> class_sets(width);
  const auto& starts = dfa.alphabet.starts();
  for (std::size_t run = 0; run < starts.size(); ++run) {
    class_sets[dfa.alphabet.run_classes()[run]].add(starts[run],
                                                    run + 1 < starts.size() ? starts[run + 1] - 1 : kMaxCodePoint);
  }
  for (std::uint32_t state = 1; state < dfa.num_states(); ++state) {
    for (std::size_t k = 1; k < width; ++k) {
      const std::uint32_t target = dfa.next[state * width + k];
      if (target == 0) continue;
      sets_.push_back(class_sets[k]);
      const std::uint32_t source = add_state();
      states_[source] = State{Edge::kSet, mapped[target], 0, false, static_cast<std::uint32_t>(sets_.size() - 1)};
      epsilon(mapped[state], source);
    }
    if (dfa.accept[state] != 0) epsilon(mapped[state], end);
  }
  epsilon(from, mapped[dfa.start]);
  return end;
}

}  // namespace quire::grammar
