// ToolFormat: how a family of models writes tool calls and reasoning, as data. Immutable; any thread. A format is
// chosen from the chat template (detect_tool_format) or by name (find_tool_format; vLLM's and llama.cpp's names).
// Invariant: markers are stored as the model writes them, special tokens as their text. Fields marked "strict" apply
// only without OutputParserOptions::eager.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class CallSyntax {
  kNone,        // no calls: everything is content
  kJson,        // JSON objects {name, arguments}, alone or in a list
  kNamedJson,   // the name as text, then the arguments as JSON
  kPythonic,    // [name(key=value, ...), ...]
  kTagged,      // name and parameters in tags, values as text
  kBraced,      // call:name{key:value, ...} with its own string quotes
  kNestedTags,  // name in a tag, members and items as tags in tags, a mark before each
  kHarmony,     // gpt-oss channels
};

struct ToolFormat {
  std::string_view name;
  CallSyntax syntax = CallSyntax::kNone;

  // A call begins at the first of these. Some formats also have bare calls: at the output's beginning, or anywhere.
  std::vector<std::string_view> starts;
  bool bare_at_begin = false;
  bool bare_anywhere = false;
  std::string_view prompt_start;       // the part of a start that the prompt ends with (functionary's ">>>")
  std::vector<std::string_view> ends;  // markers that close the calls, or each call; optional at the output's end

  std::string_view name_begin;       // kNamedJson, kTagged: before a name
  std::string_view name_end;         // after it
  std::string_view call_end;         // after a call's last argument
  std::string_view parameter_begin;  // kTagged: before a key
  std::string_view key_end;
  std::string_view parameter_end;
  std::string_view value_begin;                // kTagged: after key_end, if a value has its own tag
  std::string_view string_quote;               // kBraced
  std::string_view tag_mark;                   // kNestedTags: before every tag
  std::string_view name_attribute;             // kTagged: a number that may follow the name (` index="`)
  std::string_view value_attribute;            // kTagged: attribute with the value's type (`string="`)
  std::string_view text_word;                  // value of value_attribute that means text; otherwise JSON
  std::vector<std::string_view> wrapper_keys;  // kTagged: parameters that may hold all arguments as JSON
  bool needs_name_end = false;                 // kTagged: skip a call whose name lacks name_end
  bool xml_values = false;                     // kTagged: values may contain CDATA or XML entities
  bool trims_values = true;  // kTagged: a line end on each side of a value belongs to the tags; without a leading one,
                             // the last is the value's

  std::string_view name_key = "name";  // kJson
  std::string_view arguments_key = "arguments";
  std::string_view id_key = "id";
  bool name_is_key = false;                         // kJson: {"name": {arguments}}
  bool in_list = false;                             // calls are written as a JSON list
  std::string_view list_mark;                       // kJson: starts calls only if a list's bracket follows
  bool single_objects = false;                      // kJson, strict: a list is no call
  bool lists_only = false;                          // kJson, strict: an object outside a list is no call
  bool empty_list_is_call = false;                  // kJson, strict: an empty list means no calls and no content
  std::string_view tools_variable;                  // template variable for the tools' JSON text; adds `datetime`
  bool needs_arguments = false;                     // kJson, strict: an object without arguments is no call
  bool skips_to_json = false;                       // kJson: text between start and list is skipped
  std::vector<std::string_view> answer_names = {};  // kJson: calls with these names are the model's answer

  bool name_may_touch = false;      // kNamedJson: the brace may follow without name_end
  bool name_is_id = false;          // kNamedJson: "functions.name:0" is the call's id, with its name in it
  bool may_be_list = false;         // kNamedJson: arguments may be a JSON list
  bool verbatim_arguments = false;  // kNamedJson: arguments are passed on unchecked, as written
  std::string_view call_id;         // kNamedJson: between a name and its id
  std::string_view fence;           // kNamedJson: may follow the arguments

  std::string_view think_begin = "<think>";
  std::string_view think_end = "</think>";
  bool reasoning_anywhere = false;       // reasoning may begin anywhere in the output
  bool starts_in_reasoning = false;      // the output begins inside the reasoning, whatever the prompt
  bool calls_end_reasoning = false;      // a call's start ends an open reasoning
  bool calls_in_open_reasoning = false;  // accept whole calls in a reasoning that never ends
  bool trims_content = false;            // strip white space around the content
  bool drops_content_with_calls = false;
  bool skips_reasoning = false;  // strict: ignore calls inside reasoning left in the content
  bool checks_schema = false;    // kTagged, strict: a call that misfits its tool is content
  bool keeps_text_after_calls = false;
  bool mends_cut_off = false;                 // strict: a cut-off call counts
  bool first_start_only = false;              // strict: only the first of `starts` begins calls
  bool may_lack_end = false;                  // models omit the end or stop generating at it
  bool needs_end = false;                     // strict: calls without their end are content
  bool begins_output = false;                 // strict: calls count only at the output's beginning
  bool ends_output = false;                   // strict: calls count only if nothing follows them
  bool start_is_enough = false;               // strict: text after a start is never content
  std::string_view answer_begin;              // may stand before an answer without calls
  std::vector<std::string_view> dropped;      // markers removed from the content
  std::vector<std::string_view> answer_tags;  // tags around the answer, removed with the reasoning
};

// Finds a format by name, ignoring case, "-" and "_": "hermes", "qwen3_coder", "DeepSeekV3", ...; null if unknown.
const ToolFormat* find_tool_format(std::string_view name);
std::vector<std::string_view> tool_format_names();

// Detects the format from a chat template's source, with the template's own think tags; otherwise the generic JSON
// format.
ToolFormat detect_tool_format(std::string_view template_source);

}  // namespace quire
