// Leaves in a Program only what finite values have, and completes its key lexers accordingly. One thread at a time.
#pragma once

#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// Nodes, arrays and objects from the given indices on. keys: per object shape, the automaton of its keys with classes
// as labels. Throws Refusal where what is left cannot be enforced exactly.
void keep_productive(Program& program, std::size_t first_node, std::size_t first_array, std::size_t first_object,
                     std::vector<Dfa>& keys, Budget& budget);

}  // namespace quire::grammar
