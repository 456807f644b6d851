// Removes from a Program all parts that no finite value has, and completes its key lexers accordingly. One thread at a
// time.
#pragma once

#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// Considers nodes, arrays and objects from the given indices on. keys: by object shape, the automaton of its keys with
// classes as labels. Throws Refusal if the remaining parts cannot be enforced exactly.
void keep_productive(Program& program, std::size_t first_node, std::size_t first_array, std::size_t first_object,
                     std::vector<Dfa>& keys, Budget& budget);

}  // namespace quire::grammar
