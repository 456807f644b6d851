// Arguments whose values are written in a form of their own all the way down: braces with bare keys, literals of
// Python, tags in tags. One thread at a time; throws Refusal.
#pragma once

#include <string>
#include <vector>

#include "core/grammar/cfg/arguments.h"

namespace quire::grammar {

// order: the names of the outermost object's properties.
Expr make_nested_arguments(const ArgumentRule& rule, const std::vector<std::u32string>& order, Lexicon& lexicon,
                           Budget& budget, Program& program, Bodies& bodies);

}  // namespace quire::grammar
