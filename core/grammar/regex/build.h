// From Expressions to automata: Thompson's construction, then subsets. Any thread; costs are bounded by the Budget.
#pragma once

#include <span>

#include "core/grammar/regex/dfa.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// Texts in which the expression matches somewhere (`pattern` in JSON Schema).
Dfa build_search(const Expr& expression, Budget& budget);
// Texts that the expression matches as a whole.
Dfa build_full(const Expr& expression, Budget& budget);
// One automaton for a set of rules that call one another; starts[i] is where rule i begins (0 where it has no text).
// `live` tells for every symbol whether it has any text; a rule's own entry is computed here (symbols
// 0..rules.size()-1).
Dfa build_rules(std::span<const Expr> rules, std::vector<bool>& live, std::vector<std::uint32_t>& starts,
                Budget& budget);

}  // namespace quire::grammar
