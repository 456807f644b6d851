// What a call has to look like, once its text has begun, for the model's format to read it: the grammar of a text that
// is free until then. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/grammar/compiler.h"
#include "core/text/tools/tool_format.h"

namespace quire {

// Nothing where calls of the format begin as other text does, or where no call of these names can be written in it.
std::optional<GrammarSpec> begun_calls_spec(const ToolFormat& format, const std::vector<std::string>& names,
                                            bool parallel);

}  // namespace quire
