// The price of following a grammar, measured while it is compiled. Any thread; takes Program::mutex for a step at a
// time.
#pragma once

#include <memory>

#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// Reads a text on which the rules stand in many places at once. Throws Refusal, naming the rule at fault, if a byte of
// the text costs too much.
void check_price(const std::shared_ptr<const Program>& program, Budget& budget);

}  // namespace quire::grammar
