// Arguments whose values are written in the call's own form down to the innermost: braces with bare keys, literals of
// Python, tags in tags. One thread at a time; throws Refusal.
#pragma once

#include <string>
#include <vector>

#include "core/grammar/cfg/arguments.h"

namespace quire::grammar {

// order: names of the outermost object's properties.
Expr make_nested_arguments(const ArgumentRule& rule, const std::vector<std::u32string>& order, Lexicon& lexicon,
                           Budget& budget, Program& program, Bodies& bodies);

}  // namespace quire::grammar
