// Builds automata from Expressions: Thompson's construction, then subsets. Any thread; costs are bounded by the Budget.
#pragma once

#include <span>

#include "core/grammar/regex/dfa.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// Texts in which the expression matches somewhere (`pattern` in JSON Schema).
Dfa build_search(const Expr& expression, Budget& budget);
// Texts that the expression matches as a whole.
Dfa build_full(const Expr& expression, Budget& budget);
// An automaton for a set of rules that call one another; starts[i] is the start of rule i (0 if it has no text).
// `live`: by symbol, whether it has any text; the rules' own entries are computed here (symbols
// 0..rules.size()-1).
Dfa build_rules(std::span<const Expr> rules, std::vector<bool>& live, std::vector<std::uint32_t>& starts,
                Budget& budget);

}  // namespace quire::grammar
