// Builds the Program of a schema: one node per distinct conjunction of conditions that a value position may have.
// One thread at a time. Invariant: shapes that no finite value has are left out, so every live prefix can be completed.
#pragma once

#include <memory>
#include <string_view>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// Appends the schema's nodes to `program`; returns the root's. Throws Refusal.
std::uint32_t build_schema(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program);

}  // namespace quire::grammar
