#include "core/grammar/build_program.h"

#include "core/grammar/json_schema/builder.h"

namespace quire::grammar {

void build_program(const GrammarSpec& spec, Lexicon& lexicon, Budget& budget, Program& program) {
  if (spec.text.size() > budget.limits().max_source_bytes) throw Refusal("the grammar is too large");
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonSchema:
      program.start = {true, build_schema(spec.text, lexicon, budget, program)};
      return;
    case GrammarSpec::Kind::kJsonObject:
      program.start = {true, build_schema(R"({"type":"object"})", lexicon, budget, program)};
      return;
    default: throw Refusal("this kind of grammar is not supported");
  }
}

}  // namespace quire::grammar
