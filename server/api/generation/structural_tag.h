// Structural tags: text that is free until a trigger, then a tagged JSON value. vLLM's and SGLang's first form
// (structures and triggers) and the one that replaced it (format). Pure functions; any thread.
#pragma once

#include <optional>

#include "core/grammar/compiler.h"
#include "server/api/common/field_reader.h"

namespace quire {

// Reads an object {"structures","triggers"} or {"format"}. nullopt: the text is free, or there is an error in the
// reader.
std::optional<GrammarSpec> read_structural_tag(FieldReader& tag);

}  // namespace quire
