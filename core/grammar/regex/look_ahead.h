// Look-ahead as intersection: (?=x)r is r restricted to texts that begin with x; (?!x)r is the rest. Any thread.
#pragma once

#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// The expression followed by `rest` (up to the end of the text), without look-ahead. Throws Refusal if a look-ahead is
// inside a repetition of a form that is not regular in one pass.
Expr resolve_ahead(const Expr& expression, const Expr& rest, Budget& budget);

}  // namespace quire::grammar
