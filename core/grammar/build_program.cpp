#include "core/grammar/compile_steps.h"

#include <string>
#include <vector>

#include "core/grammar/cfg/rules.h"
#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/builder.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

void build_program(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                   Program& program) {
  if (spec.text.size() > budget.limits().max_source_bytes) throw Refusal("the grammar is too large");
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonSchema:
      program.start = {true, build_schema(spec.text, lexicon, budget, program)};
      return;
    case GrammarSpec::Kind::kJsonObject:
      program.start = {true, build_schema(R"({"type":"object"})", lexicon, budget, program)};
      return;
    case GrammarSpec::Kind::kRegex: return build_bodies({parse_regex(spec.text, budget)}, {}, budget, program);
    case GrammarSpec::Kind::kEbnf:
    case GrammarSpec::Kind::kGbnf: {
      const bool gbnf = spec.kind == GrammarSpec::Kind::kGbnf;
      return build_rules_program(parse_rules(spec.text, gbnf, {&vocabulary, {}}, budget), spec.root, budget, program);
    }
    case GrammarSpec::Kind::kChoice: {
      if (spec.choices.empty()) throw Refusal("a choice needs something to choose from");
      std::vector<Expr> choices;
      for (const std::string& choice : spec.choices) {
        budget.take_nodes(1 + choice.size());
        choices.push_back(make_literal(choice));
      }
      return build_bodies({make_alternate(std::move(choices))}, {}, budget, program);
    }
    case GrammarSpec::Kind::kStructural: return build_structural(spec, lexicon, vocabulary, budget, program);
  }
}

}  // namespace quire::grammar
