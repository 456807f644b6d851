// Items that must differ from one another: scalars with a single spelling each, or compared by value. One thread at a
// time.
#pragma once

#include <string>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/json_schema/shapes.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// The node of such an item; `pointer`: the keyword's. Throws Refusal if items could be arrays or objects, or numbers
// whose supply cannot be counted.
ValueNode make_unique_item(const Shapes& shapes, const std::string& pointer, Lexicon& lexicon, Budget& budget);

}  // namespace quire::grammar
