// Calls as a format's model writes them, made from the same description that its reader and grammar are made from. Pure
// functions; any thread. Invariant: the format's reader finds the same calls in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json.h"
#include "core/text/tokenizer.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct WrittenCall {
  std::string name;
  Json arguments = Json::object();
};

// The format's marks are trusted text, names and arguments are not. JSON objects where the format has no calls.
std::vector<TextPiece> write_calls(const ToolFormat& format, const std::vector<WrittenCall>& calls);

// Whether a special token with this text is a mark of a known tool format, or a part of one, so that a grammar of calls
// must allow it.
bool is_call_mark(std::string_view token);

}  // namespace quire
