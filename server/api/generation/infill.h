// The prompt of a fill-in-the-middle request: the model writes the text between two texts. Pure function; any thread;
// meant for text threads.
#pragma once

#include <optional>
#include <vector>

#include "core/text/fill_in_the_middle.h"
#include "server/api/common/served_model.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// Leaves room for max_tokens, for a quarter of the context where that is absent. The tokens by which such a model ends
// the gap become stop tokens of the request. nullopt: the model has no tokens to fill in the middle.
std::optional<std::vector<TokenId>> infill_prompt(const ServedModel& model, const FimText& text,
                                                  GenerationFields& fields);

}  // namespace quire
