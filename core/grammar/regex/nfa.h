// Nfa: Thompson's automaton of an Expression, the step before subsets. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

class Nfa {
 public:
  enum class Edge : std::uint8_t { kNone, kEpsilon, kSet, kBegin, kEnd, kCall };
  struct State {
    Edge edge = Edge::kNone;
    std::uint32_t target = 0;
    std::uint32_t second = 0;  // kEpsilon: another target, if has_second
    bool has_second = false;
    std::uint32_t value = 0;  // kSet: index into sets(); kCall: symbol
  };

  explicit Nfa(Budget& budget) : budget_(budget) {}
  // Appends the expression from state `from`; returns the state where it ends.
  std::uint32_t add(const Expression& expression, std::uint32_t from, std::size_t depth = 0);
  std::uint32_t add_state();
  void add_epsilon(std::uint32_t from, std::uint32_t to) { epsilon(from, to); }
  // Turns tail calls of `rule` to itself, among states from `first` on, into edges back to its beginning: right
  // recursion becomes a loop.
  void loop_tail_calls(std::uint32_t rule, std::uint32_t first, std::uint32_t begin, std::uint32_t end);
  const std::vector<State>& states() const { return states_; }
  const std::vector<CharSet>& sets() const { return sets_; }

 private:
  bool leads_only_to(std::uint32_t from, std::uint32_t end) const;
  void epsilon(std::uint32_t from, std::uint32_t to);
  std::uint32_t split(std::uint32_t from);
  std::uint32_t add_repeat(const Expression& expression, std::uint32_t from, std::size_t depth);
  std::uint32_t add_automaton(const Dfa& dfa, std::uint32_t from);

  Budget& budget_;
  std::vector<State> states_;
  std::vector<CharSet> sets_;
};

}  // namespace quire::grammar
