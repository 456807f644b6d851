// ToolFormat: how a family of models writes tool calls and reasoning, as data. Immutable; any thread.
// A format is chosen from the chat template (detect_tool_format) or by name (find_tool_format; vLLM's and llama.cpp's
// names). Invariant: texts are what the model writes, special tokens as their text.
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
  std::string_view value_begin;                // kTagged: after key_end, where a value has a tag of its own
  std::string_view string_quote;               // kBraced
  std::string_view tag_mark;                   // kNestedTags: before every tag
  std::string_view name_attribute;             // kTagged: a number that may follow the name (` index="`)
  std::string_view value_attribute;            // kTagged: of a key, says what its value is (`string="`)
  std::string_view text_word;                  // value of value_attribute that means text; otherwise JSON
  std::vector<std::string_view> wrapper_keys;  // kTagged: a parameter of such a name may hold all arguments as JSON
  bool needs_name_end = false;                 // kTagged: a name without name_end is malformed and its call passed over
  bool xml_values = false;                     // kTagged: values may be CDATA or have XML's entities in them
  bool trims_values = true;  // kTagged: a line end at each side of a value belongs to the tags (where none leads, the
                             // last is the value's)

  std::string_view name_key = "name";  // kJson
  std::string_view arguments_key = "arguments";
  std::string_view id_key = "id";
  bool name_is_key = false;                         // kJson: {"name": {arguments}}
  bool in_list = false;                             // calls are written as a JSON list
  std::string_view list_mark;                       // kJson: a word that begins calls only with the list's bracket
  bool single_objects = false;                      // kJson, not eager: a list is no call
  bool lists_only = false;                          // kJson, not eager: an object outside a list is no call
  bool empty_list_is_call = false;                  // kJson, not eager: an empty list stands for no content either
  std::string_view tools_variable;                  // template variable for the tools' JSON text; adds `datetime`
  bool needs_arguments = false;                     // kJson, not eager: an object without arguments is no call
  bool skips_to_json = false;                       // kJson: text between the start and the list is passed over
  std::vector<std::string_view> answer_names = {};  // kJson: a call of such a name says that the model answers itself

  bool name_may_touch = false;      // kNamedJson: the arguments' brace may follow the name without name_end
  bool name_is_id = false;          // kNamedJson: "functions.name:0" is the call's id, with its name in it
  bool may_be_list = false;         // kNamedJson: a JSON list may stand there instead
  bool verbatim_arguments = false;  // kNamedJson: arguments are passed on as written, even where they are not JSON
  std::string_view call_id;         // kNamedJson: between a name and its id
  std::string_view fence;           // kNamedJson: may stand after the arguments

  std::string_view think_begin = "<think>";
  std::string_view think_end = "</think>";
  bool reasoning_anywhere = false;       // not at the output's beginning only
  bool starts_in_reasoning = false;      // the output begins inside the reasoning whatever the prompt's end is
  bool calls_end_reasoning = false;      // a call's start ends an open reasoning
  bool calls_in_open_reasoning = false;  // whole calls in a reasoning that the output's end leaves open are calls
  bool trims_content = false;            // white space around the content goes
  bool drops_content_with_calls = false;
  bool skips_reasoning = false;  // not eager: where reasoning is left in the content, calls inside it are none
  bool checks_schema = false;    // kTagged, not eager: a call that does not fit its tool is content
  bool keeps_text_after_calls = false;
  bool mends_cut_off = false;     // not eager: a call cut off by the end of the output is one nevertheless
  bool first_start_only = false;  // not eager: calls begin at the first of `starts` only
  bool may_lack_end = false;      // models leave the end out, or their generation ends with it
  bool needs_end = false;         // not eager: calls without their end are content
  bool begins_output = false;     // not eager: calls count only where they begin the output
  bool ends_output = false;       // not eager: and only where nothing follows them
  bool start_is_enough = false;   // not eager: text after a start is never content, even where no call can be read
  std::string_view answer_begin;  // may stand before an answer without calls
  std::vector<std::string_view> dropped;      // markers that are no part of the content
  std::vector<std::string_view> answer_tags;  // dropped where reasoning is taken out: they wrap what follows it
};

// By name, not minding case, "-" and "_": "hermes", "qwen3_coder", "DeepSeekV3", ...; null where there is none.
const ToolFormat* find_tool_format(std::string_view name);
std::vector<std::string_view> tool_format_names();

// From a chat template's source: the format its model was trained to write, with the template's own think tags.
// Where nothing is recognised: the generic JSON format.
ToolFormat detect_tool_format(std::string_view template_source);

}  // namespace quire
