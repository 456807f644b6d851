// The steps from a GrammarSpec to a Grammar, in the order of compiler.cpp: the Program is built, its price is measured,
// and it is bound to a vocabulary. One thread at a time; the first three throw Refusal.
#pragma once

#include <atomic>
#include <memory>

namespace quire {

class Grammar;
class TokenVocabulary;
struct GrammarSpec;

}  // namespace quire

namespace quire::grammar {

class Budget;
class Lexicon;
struct Program;

void build_program(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                   Program& program);

// The step of build_program() for text with tagged JSON values in it, as models write tool calls.
void build_structural(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                      Program& program);

// Reads a text on which the rules stand in many places at once. Throws Refusal, naming the rule at fault, if a byte of
// the text costs too much.
void check_price(const std::shared_ptr<const Program>& program, Budget& budget);

// A Program bound to a vocabulary, for the engine. Immutable; the masks prepared for it grow under Program::mutex.
std::shared_ptr<const Grammar> make_grammar(std::shared_ptr<const Program> program,
                                            std::shared_ptr<const TokenVocabulary> vocabulary);

// Set once a text has cost more than the grammar's Allowance.
using GrammarFailure = std::shared_ptr<std::atomic<bool>>;
// Wraps `made`, which make_grammar() made, for a client whose failure is recorded.
std::shared_ptr<const Grammar> note_failure(std::shared_ptr<const Grammar> made, GrammarFailure failed);

}  // namespace quire::grammar
