// Arguments of calls in the forms that models write them, as Expressions made of their tool's schema. One thread at a
// time; throws Refusal.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

// The rules of one grammar as they are collected. Calls of JSON values are numbered from kValueCalls on until
// number_values() gives them their places behind the bodies.
struct Bodies {
  std::vector<Expr> bodies;
  std::vector<Symbol> values;

  // The call of a new body, which is not written into its callers.
  Expr add(Expr body);
  // The place of a body that is still to be written.
  std::uint32_t reserve();
  static Expr call(std::uint32_t body);
  Expr value(std::uint32_t node);
  void number_values(Budget& budget);
};

// All that follows the place where the arguments begin, up to their end.
Expr make_arguments(const ArgumentRule& rule, Lexicon& lexicon, Budget& budget, Program& program, Bodies& bodies);

}  // namespace quire::grammar
