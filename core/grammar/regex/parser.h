// Parses regular expressions: ECMA-262 with the leniency of its Annex B, which JSON Schema's `pattern` requires.
// Any thread. Invariant: constructs that are not regular (back-references, look-behind) throw Refusal, never a
// guess.
#pragma once

#include <string_view>

#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// source: UTF-8. Throws Refusal.
Expr parse_regex(std::string_view source, Budget& budget);

// \d, \w, \s and their complements by letter ('d', 'D', ...), in ECMA-262's meaning; '.' is all but line ends.
CharSet class_escape(char32_t letter);
CharSet dot_set();
// A Unicode general category by its short or long name ("L", "Lu", "Letter"); Refusal for other properties.
CharSet unicode_property(const std::string& name);

}  // namespace quire::grammar
