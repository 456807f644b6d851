// Regular expressions, from their text to an automaton: parsed (ECMA-262 with the leniency of its Annex B, which JSON
// Schema's `pattern` requires), freed of look-ahead, and built by Thompson's construction and subsets. Any thread; the
// Budget bounds the cost. Invariant: constructs that are not regular (back-references, look-behind) throw Refusal.
#pragma once

#include <span>
#include <string_view>

#include "core/grammar/limits.h"
#include "core/grammar/regex/dfa.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// source: UTF-8. Throws Refusal.
Expr parse_regex(std::string_view source, Budget& budget);

// \d, \w, \s and their complements by letter ('d', 'D', ...), in ECMA-262's meaning; '.' is all but line ends.
CharSet class_escape(char32_t letter);
CharSet dot_set();
// A Unicode general category by its short or long name ("L", "Lu", "Letter"); Refusal for other properties.
CharSet unicode_property(const std::string& name);

// The expression followed by `rest` (up to the end of the text), without look-ahead. Throws Refusal if a look-ahead is
// inside a repetition of a form that is not regular in one pass.
Expr resolve_ahead(const Expr& expression, const Expr& rest, Budget& budget);

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
