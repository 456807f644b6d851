// Rules: a grammar written in EBNF (the dialect of vLLM and xgrammar) or GBNF (llama.cpp), as named Expressions, and
// the program made of them. One thread at a time; throws Refusal.
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
  bool is_given = false;  // the body is not from the source; its calls are not rules
};

// Symbols that a source may refer to besides its own rules.
struct RuleContext {
  const TokenVocabulary* vocabulary = nullptr;  // tokens by number and by text
  std::vector<Rule> given;
};

// `gbnf` selects GBNF: there '.' is any character, rules end with their line, and <[12]> or <text> is a token.
std::vector<Rule> parse_rules(std::string_view source, bool gbnf, const RuleContext& context, Budget& budget);

// The expression with all its calls moved up by `by`.
Expr with_calls_moved(const Expr& expression, std::uint32_t by, Budget& budget);

// Makes `program` begin with the rule named `root`. Rules that do not recur are copied into their callers.
void build_rules_program(const std::vector<Rule>& rules, const std::string& root, Budget& budget, Program& program);

// Makes `program` begin with bodies[0]. Calls below `bodies.size()` refer to these bodies, larger ones to symbols that
// `program` already has (values).
// names: the bodies' names, if they have any.
void build_bodies(std::vector<Expr> bodies, const std::vector<Symbol>& values, Budget& budget, Program& program,
                  const std::vector<std::string>& names = {});

}  // namespace quire::grammar
