// The grammar of a model's calls, made from the description of their format: free text until a call begins, which then
// has the format's form and arguments by its tool's schema. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/grammar/compiler.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct CalledTool {
  std::string name;
  std::string schema = {};  // of its arguments, as JSON text; empty: any object
  bool exact = false;       // what of the schema the format cannot be held to is refused, not left out
};

// Nothing where the format has no calls, or where no call of these names can be written in it.
std::optional<GrammarSpec> call_grammar_spec(const ToolFormat& format, const std::vector<CalledTool>& tools,
                                             bool parallel);

}  // namespace quire
