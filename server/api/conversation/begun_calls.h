// The grammar of a text that is free until a tool call begins, which then must have the model's format. Pure functions;
// any thread.
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
