// Builds the Program of a machine from a GrammarSpec. One thread at a time; throws grammar::Refusal.
#pragma once

#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

void build_program(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                   Program& program);

}  // namespace quire::grammar
