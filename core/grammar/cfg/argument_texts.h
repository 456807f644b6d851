// Automata of texts between the marks of a call. One thread at a time; throws Refusal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/json_schema/shapes.h"
#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// White space of any length.
Expr any_space();
// The texts that the alternative allows; null: all.
DfaPtr texts_of(const StringAlternative& string, Budget& budget);
// `text` (null: any text) up to the first match of `stop`, then `end`. name: the automaton's, if any text is
// allowed.
Expr text_up_to(const Expr& text, const Expr& end, const Expr& stop, const std::string& name, Lexicon& lexicon,
                Budget& budget);
// The texts of `dfa` (null: all texts) that contain no character of the set.
DfaPtr without(const DfaPtr& dfa, const CharSet& kept_out, Budget& budget);
// Any of the words.
Expr make_words(const std::vector<std::string>& words);
// Keys with names other than these, without the characters of the set.
Expr other_keys(const std::vector<std::u32string>& names, const CharSet& kept_out, Budget& budget);
std::string utf8(const std::u32string& text);

}  // namespace quire::grammar
