// CompiledGrammar: a Program bound to a vocabulary, for the engine. Immutable after construction (the masks prepared
// for it grow under Program::mutex).
#pragma once

#include <atomic>
#include <memory>

#include "core/grammar/grammar.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire::grammar {

std::shared_ptr<const Grammar> make_grammar(std::shared_ptr<const Program> program,
                                            std::shared_ptr<const TokenVocabulary> vocabulary);

// Set once a text has cost more than the grammar's Allowance.
using GrammarFailure = std::shared_ptr<std::atomic<bool>>;
// Wraps `made`, which make_grammar() made, for a client whose failure is recorded.
std::shared_ptr<const Grammar> note_failure(std::shared_ptr<const Grammar> made, GrammarFailure failed);

}  // namespace quire::grammar
