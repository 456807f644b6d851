// Rules: a grammar written in EBNF (as vLLM and xgrammar write it) or GBNF (llama.cpp), as named Expressions, and the
// program made of them. One thread at a time; throws Refusal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/mask/vocabulary.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

struct Rule {
  std::string name;
  Expr body;              // calls are indices of rules
  bool is_given = false;  // the body is not of the source; its calls are no rules'
};

// What a source may refer to beside its own rules.
struct RuleContext {
  const TokenVocabulary* vocabulary = nullptr;  // of tokens by number, and by text
  std::vector<Rule> given;
};

// `gbnf` selects what differs: there '.' is any character, rules end with their line, and <[12]> or <text> is a token.
std::vector<Rule> parse_rules(std::string_view source, bool gbnf, const RuleContext& context, Budget& budget);

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
