// Calls whose arguments stand in tags, as an Expression. One thread at a time; throws Refusal.
#pragma once

#include "core/grammar/compiler.h"
#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// What follows a tag's `begin` up to its `end`.
Expr tagged_calls(const TaggedCalls& calls, Budget& budget);

}  // namespace quire::grammar
