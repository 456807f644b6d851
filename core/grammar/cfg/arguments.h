// Arguments of calls in the forms that models write, as Expressions made from their tool's schema; nested ones are in
// the call's own form down to the innermost value: braces with bare keys, literals of Python, tags in tags. One thread
// at a time; throws Refusal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// The rules of a grammar while they are collected. Calls of JSON values are numbered from kValueCalls on until
// number_values() gives them their places after the bodies.
struct Bodies {
  std::vector<Expr> bodies;
  std::vector<Symbol> values;

  // A call of a new body; the body is not copied into its callers.
  Expr add(Expr body);
  // The place of a body that will be written later.
  std::uint32_t reserve();
  static Expr call(std::uint32_t body);
  Expr value(std::uint32_t node);
  void number_values(Budget& budget);
};

// All text from the place where the arguments begin up to their end.
Expr make_arguments(const ArgumentRule& rule, Lexicon& lexicon, Budget& budget, Program& program, Bodies& bodies);

// order: names of the outermost object's properties.
Expr make_nested_arguments(const ArgumentRule& rule, const std::vector<std::u32string>& order, Lexicon& lexicon,
                           Budget& budget, Program& program, Bodies& bodies);

}  // namespace quire::grammar
