// read_calls: the tool calls in a stretch of output that begins where a format's calls begin. Any thread; pure
// functions. Invariant: the calls read of a text's beginning are beginnings of those read of the whole text (ids,
// names, arguments alike).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tools/json_scan.h"
#include "core/text/tools/output_parser.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct CallReading {
  ScanStatus status = ScanStatus::kPartial;  // kComplete: no call follows `end`
  std::size_t end = 0;
  std::size_t good_end = 0;           // after the last whole call and its closing markers
  std::vector<ParsedToolCall> calls;  // the last one may be unfinished
  bool unfinished = false;            // the last one is
  bool closed = true;                 // no closing marker is missing
  bool empty_list = false;            // a list without calls stands there, which the format allows
};

struct CallContext {
  const ToolFormat& format;
  const std::vector<ToolSpec>& tools;
  bool final = false;   // the output ends where the text does
  bool strict = false;  // a format's rules for calls that are not read eagerly hold
  JsonSpacing spacing = JsonSpacing::kSpaced;
  bool exact = false;  // strict, with the rules of OutputParserOptions::exact
};

CallReading read_calls(std::string_view text, const CallContext& context);

// Each function reads one syntax.
CallReading read_json_calls(std::string_view text, const CallContext& context);
CallReading read_named_calls(std::string_view text, const CallContext& context);
CallReading read_pythonic_calls(std::string_view text, const CallContext& context);
CallReading read_tagged_calls(std::string_view text, const CallContext& context);
CallReading read_braced_calls(std::string_view text, const CallContext& context);
CallReading read_nested_tags(std::string_view text, const CallContext& context);

// The first of `markers` (the longest where several fit) that stands at `position`; its length, 0 where none does.
std::size_t match_marker(std::string_view text, std::size_t position, const std::vector<std::string_view>& markers);
// True where the text from `position` on could still become `marker`.
bool may_become(std::string_view text, std::size_t position, std::string_view marker);
bool may_become_any(std::string_view text, std::size_t position, const std::vector<std::string_view>& markers);
// The length of the closing marker at `position`; 0 where none stands there, or a longer opening one may yet.
std::size_t match_end(std::string_view text, std::size_t position, const CallContext& context);
// The length of the longest end of `text` that could still become one of `markers`.
std::size_t held_back(std::string_view text, const std::vector<std::string_view>& markers);

// A Python literal as JSON; nothing where `text` is none.
std::optional<std::string> python_literal_to_json(std::string_view text, JsonSpacing spacing);
// The text as the JSON value that it is; as a string where it is none.
std::string json_value(std::string_view text, JsonSpacing spacing);
// A parameter's text as the JSON value its schema asks for; types empty: a string, unless it is an object or array.
std::string coerce_value(std::string_view text, const std::vector<std::string>& types, JsonSpacing spacing);
const ToolSpec* find_tool(const std::vector<ToolSpec>& tools, std::string_view name);
const ToolParameter* find_parameter(const ToolSpec* tool, std::string_view name);

}  // namespace quire
