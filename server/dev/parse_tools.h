// The work of `quire-dev parse-tools`: JSON lines to the parsed message, with the parsers the server uses. One thread
// at a time. In:  {"format": name or "template": source, "tools": [...], "text": ..., "chunks": n or [...]} Out:
// {"content":
// ..., "reasoning_content": ..., "tool_calls": [{"id", "name", "arguments"}]} or {"error": ...} Optional:
// "reasoning_format" ("none" leaves reasoning in the content; the default is "auto" with a template, "none" with a
// format), "generation_prompt" (rendered from "messages" and "enable_thinking" where absent), "tool_choice",
// "json_schema", "is_partial" (the text continues), "eager" (true with a template, false with a format: see
// output_parser.h).
#pragma once

#include <iosfwd>

namespace quire::dev {

// Answers each line of `in` with one line of `out`; an unreadable line is answered with its error.
void run_parse_tools(std::istream& in, std::ostream& out);

}  // namespace quire::dev
