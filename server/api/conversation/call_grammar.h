// The grammar of a model's calls, made from their format's description: free text until a call begins, which must then
// have the format's form, with arguments by its tool's schema. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/grammar/compiler.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct CalledTool {
  std::string name;
  std::string schema = {};  // schema of its arguments, as JSON text; empty: any object
  bool exact = false;       // refuses keywords that the format cannot enforce
};

// Returns nothing if the format has no calls, or if it can write no call of these names.
std::optional<GrammarSpec> call_grammar_spec(const ToolFormat& format, const std::vector<CalledTool>& tools,
                                             bool parallel);

}  // namespace quire
