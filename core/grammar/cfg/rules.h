// Rules: a grammar written in EBNF (as vLLM and xgrammar write it) or GBNF (llama.cpp), as named Expressions, and the
// program made of them. One thread at a time; throws Refusal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

struct Rule {
  std::string name;
  Expr body;  // calls are indices of rules
};

// `gbnf` selects what differs: there '.' is any character, and rules end with their line.
std::vector<Rule> parse_rules(std::string_view source, bool gbnf, Budget& budget);

// The same with all calls moved up by so many.
Expr with_calls_moved(const Expr& expression, std::uint32_t by, Budget& budget);

// Makes `program` begin with the rule named `root`. Rules that do not recur are written into those that use them.
void build_rules_program(const std::vector<Rule>& rules, const std::string& root, Budget& budget, Program& program);

// The same for bodies whose calls below `bodies.size()` are each other's and whose further calls are symbols that
// `program` already has (values), numbered on from there. Begins with bodies[0].
// names: of the bodies, where they have any.
void build_bodies(std::vector<Expr> bodies, const std::vector<Symbol>& values, Budget& budget, Program& program,
                  const std::vector<std::string>& names = {});

}  // namespace quire::grammar
