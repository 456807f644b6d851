// Structural grammars: text with tagged JSON values in it, as models write tool calls. One thread at a time; throws
// Refusal.
#pragma once

#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

void build_structural(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                      Program& program);

}  // namespace quire::grammar
