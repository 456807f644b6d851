// CompiledGrammar: a Program bound to a vocabulary, as the engine sees it. Immutable after construction (the masks
// prepared for it grow under Program::mutex).
#pragma once

#include <memory>

#include "core/grammar/grammar.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire::grammar {

std::shared_ptr<const Grammar> make_grammar(std::shared_ptr<const Program> program,
                                            std::shared_ptr<const TokenVocabulary> vocabulary);

}  // namespace quire::grammar
