#include "server/api/conversation/begun_calls.h"

#include <algorithm>
#include <cctype>

namespace quire {

namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Python's literals, as far as they are read: an object's and a list's items, and a name's arguments.
constexpr std::string_view kPythonCall = R"GBNF(
arguments ::= ws (arg (ws "," ws arg)* ws)? ")"
arg ::= [A-Za-z_] [A-Za-z0-9_]* ws "=" ws value
value ::= text | number | "True" | "False" | "None" | "true" | "false" | "null" | list | dict
list ::= "[" ws (value (ws "," ws value)*)? ws "]"
dict ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= text ws ":" ws value
text ::= "\"" ([^"\\\n] | "\\" ["'\\nrt])* "\"" | "'" ([^'\\\n] | "\\" ["'\\nrt])* "'"
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]{1,3})?
ws ::= [ \n]{0,16}
)GBNF";

// An object of JSON, and one call of several keys.
constexpr std::string_view kJsonObject = R"GBNF(
object ::= "{" ws (member (ws "," ws member)*)? ws "}"
member ::= text ws ":" ws value
value ::= object | "[" ws (value (ws "," ws value)*)? ws "]" | text | number | "true" | "false" | "null"
text ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-cefA-CEF] [0-9a-fA-F]{3}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]{1,3})?
ws ::= [ \n]{0,16}
)GBNF";

// ("a" | "b"): names have letters, digits and - _ . only.
std::string alternatives(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "(\"" : " | \"") + name + "\"";
  return text + ") ";
}

// The text as a literal of GBNF.
std::string literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + "\" ";
}

bool is_plain(const std::string& name) {
  return !name.empty() && name.find_first_of("\"\\\n<>{}") == std::string::npos;
}

// (add|get\.time): the same for a regular expression.
std::string any_name(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += text.empty() ? '(' : '|';
    for (const char c : name) {
      if (std::string_view(".*+?()[]^$|/").find(c) != std::string_view::npos) text += '\\';
      text += c;
    }
  }
  return text + ')';
}

// A key of a JSON object up to its value.
std::string json_key(std::string_view name) {
  return literal('"' + std::string(name) + '"') + "ws \":\" ws ";
}

// A JSON text that is one of the names.
std::string json_name(const std::vector<std::string>& names) {
  return literal("\"") + alternatives(names) + literal("\"");
}

// One more tag, at which free text ends.
void add_tag(GrammarSpec& spec, StructuralTag tag) {
  spec.triggers.push_back(tag.begin);
  spec.tags.push_back(std::move(tag));
}

std::string first_of(const std::vector<std::string_view>& texts) {
  return texts.empty() ? std::string() : std::string(texts.front());
}

void add_json(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  const ToolFormat::Frame& frame = format.frame;
  for (const std::string& name : names)
    spec.tags.push_back(StructuralTag{std::string(frame.begin) + name + std::string(frame.middle),
                                      std::string(kAnyObject), std::string(frame.end)});
  spec.triggers = {std::string(frame.trigger)};
  spec.separator = frame.between;
  spec.prefix = frame.before;
  spec.suffix = frame.after;
}

void add_tagged(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  TaggedCalls calls{names,
                    std::string(format.name_begin),
                    std::string(format.name_end),
                    std::string(format.parameter_begin),
                    std::string(format.key_end),
                    std::string(format.value_begin),
                    std::string(format.parameter_end),
                    std::string(format.call_end)};
  if (calls.call_end.empty()) return;
  for (const std::string_view start : format.starts) {
    StructuralTag tag{std::string(start), "", first_of(format.ends)};
    tag.calls = calls;
    tag.calls->parallel = spec.parallel;
    tag.calls->is_begun = start == format.name_begin;
    if (tag.calls->is_begun) tag.end.clear();
    add_tag(spec, std::move(tag));
  }
}

// Between the quotes of the format, whose first character is kept out of the text as a whole.
void add_braced(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  StructuralTag tag{std::string(format.starts.front()), "", first_of(format.ends)};
  const std::string quote = literal(format.string_quote);
  tag.rules = "root ::= " + literal(format.name_begin) + alternatives(names) + "object\n" +
              "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\n" + "pair ::= [A-Za-z_] [A-Za-z0-9_-]* \":\" value\n" +
              "value ::= text | number | \"true\" | \"false\" | \"null\" | list | object\n" +
              "list ::= \"[\" (value (\",\" value)*)? \"]\"\n" + "text ::= " + quote + "[^<]* " + quote + "\n" +
              "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)?\n";
  add_tag(spec, std::move(tag));
}

// One call, or several, each with its name and its arguments in brackets.
std::string python_calls(const std::vector<std::string>& names, bool parallel) {
  return "calls ::= call" + std::string(parallel ? " (ws \",\" ws call)*" : "") + " ws\n" +
         "call ::= " + alternatives(names) + "ws \"(\" arguments\n" + std::string(kPythonCall);
}

// Between the format's marks, in brackets or not; and, where calls may do without marks, in brackets at the text's
// beginning or anywhere.
void add_pythonic(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  const std::string calls = python_calls(names, spec.parallel);
  const std::string end = first_of(format.ends);
  for (const std::string_view start : format.starts) {
    StructuralTag tag{std::string(start), "", end};
    tag.rules = "root ::= ws (\"[\" ws calls \"]\" ws | calls)\n" + calls;
    add_tag(spec, std::move(tag));
  }
  spec.stops = format.ends_output;
  if (!format.bare_at_begin && !format.bare_anywhere) return;
  spec.opening_anywhere = format.bare_anywhere;
  const std::string more = spec.parallel ? "ws (\",\" ws call ws)*" : "ws";
  const std::string before = format.bare_anywhere ? "" : R"([ \t\r\n]*)";
  spec.opening = before + R"(\[[ \n]{0,16})" + any_name(names) + R"([ \n]{0,16}\()";
  spec.opening_rules = "root ::= arguments " + more + " \"]\"" + (format.bare_anywhere ? "\n" : " ws\n") + calls;
}

// Mistral's: a name and its arguments behind each mark, or a list of objects behind the first.
void add_mistral(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  StructuralTag tag{std::string(format.starts.front()), "", ""};
  const std::string more = spec.parallel ? "(\",\" ws item ws)* " : "";
  tag.rules = "root ::= " + alternatives(names) + "(" + literal(format.call_id) + "[A-Za-z0-9]{1,64})? (" +
              literal(format.name_end) + ")? object | ws \"[\" ws item ws " + more + "\"]\"\n" + "item ::= \"{\" ws " +
              json_key("name") + json_name(names) + "ws \",\" ws " + json_key("arguments") + "object (ws \",\" ws " +
              json_key("id") + literal("\"") + "[A-Za-z0-9]{1,64} " + literal("\"") + ")? ws \"}\"\n" +
              std::string(kJsonObject);
  add_tag(spec, std::move(tag));
}

// A list of objects behind each mark, or, where the format takes it, one object.
void add_listed_json(const ToolFormat& format, std::vector<std::string> names, GrammarSpec& spec) {
  names.insert(names.end(), format.answer_names.begin(), format.answer_names.end());
  const std::string name = json_name(names) + "ws ";
  const std::string id = json_key(format.id_key) + "id ws ";
  const std::string item = format.name_is_key
                               ? "\"{\" ws " + name + "\":\" ws object ws \"}\""
                               : "\"{\" ws (" + id + "\",\" ws)? " + json_key(format.name_key) + name + "\",\" ws " +
                                     json_key(format.arguments_key) + "object ws (\",\" ws " + id + ")? \"}\"";
  const std::string items = "item ws " + std::string(spec.parallel ? "(\",\" ws item ws)* " : "");
  // A mark that is a word of ordinary text begins a call only with the list's bracket.
  const std::string mark(format.frame.before.substr(format.frame.before.find_first_not_of(' ')));
  const bool is_word =
      std::isalpha(static_cast<unsigned char>(format.starts.back().front())) != 0 && format.ends.empty();
  for (const std::string_view start : format.starts) {
    StructuralTag tag{is_word ? mark : std::string(start), "", first_of(format.ends)};
    const std::string list = is_word ? "ws " + items + "\"]\"" : "ws \"[\" ws " + items + "\"]\" ws";
    tag.rules = "root ::= " + list + (is_word || format.lists_only ? "\n" : " | ws item ws\n") + "item ::= " + item +
                "\nid ::= text | \"0\" | [1-9] [0-9]{0,8}\n" + std::string(kJsonObject);
    add_tag(spec, std::move(tag));
    if (is_word) break;
  }
  spec.stops = format.ends_output;
}

// A section of calls, each with its marks, its name and its arguments.
void add_section(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  StructuralTag tag{std::string(format.starts.front()), "", first_of(format.ends)};
  const std::string name =
      format.name_is_id ? "\"functions.\" " + alternatives(names) + "\":\" [0-9]{1,4} " : alternatives(names);
  const std::string fence = format.fence.empty() ? "" : "(" + literal(format.fence) + "ws)? ";
  tag.rules = "root ::= ws call " + std::string(spec.parallel ? "(ws call)* " : "") + "ws\n" +
              "call ::= " + literal(format.name_begin) + name + literal(format.name_end) + "ws object ws " + fence +
              literal(format.call_end) + "\n" + std::string(kJsonObject);
  add_tag(spec, std::move(tag));
}

// JSON that begins the text: an object with a tool's name, or a list of such.
void add_bare_json(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  const bool is_list = format.frame.before.starts_with("[");
  const std::string rest = "ws \",\" ws " + json_key(format.arguments_key) + "object ws \"}\" ws ";
  const std::string item = "\"{\" ws " + json_key("name") + json_name(names) + rest;
  const std::string between = is_list ? "\",\" ws " : "\";\"? ws ";
  const std::string more = spec.parallel ? "(" + between + item + ")* " : "";
  spec.opening = std::string(R"([ \t\r\n]*)") + (is_list ? R"(\[[ \n]{0,16})" : "") +
                 R"(\{[ \n]{0,16}"name"[ \n]{0,16}:[ \n]{0,16}")" + any_name(names) + "\"";
  spec.opening_rules = "root ::= " + rest + more + (is_list ? "\"]\" ws" : "") + "\n" + std::string(kJsonObject);
}

// A format that begins its calls in a way that none of its tags has is left free.
bool begins_tags(const GrammarSpec& spec) {
  return std::all_of(spec.triggers.begin(), spec.triggers.end(), [&](const std::string& each) {
    return std::any_of(spec.tags.begin(), spec.tags.end(),
                       [&](const auto& tag) { return tag.begin.starts_with(each); });
  });
}

}  // namespace

std::optional<GrammarSpec> begun_calls_spec(const ToolFormat& format, const std::vector<std::string>& names,
                                            bool parallel) {
  if (names.empty() || !std::all_of(names.begin(), names.end(), is_plain)) return std::nullopt;
  const std::string_view trigger = format.frame.trigger;
  const bool is_marked = !trigger.empty() && trigger.front() != '{' && trigger.front() != '[';
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kStructural;
  spec.parallel = parallel;
  if (format.may_be_list) {
    add_mistral(format, names, spec);
  } else if (format.syntax == CallSyntax::kPythonic) {
    add_pythonic(format, names, spec);
  } else if (format.syntax == CallSyntax::kJson && format.bare_at_begin) {
    add_bare_json(format, names, spec);
  } else if (format.syntax == CallSyntax::kJson && format.frame.before.ends_with('[')) {
    add_listed_json(format, names, spec);
  } else if (format.syntax == CallSyntax::kNamedJson && !format.frame.before.empty()) {
    add_section(format, names, spec);
  } else if (format.json_calls() && is_marked) {
    add_json(format, names, spec);
  } else if (format.syntax == CallSyntax::kTagged && is_marked) {
    add_tagged(format, names, spec);
  } else if (format.syntax == CallSyntax::kBraced && is_marked) {
    add_braced(format, names, spec);
  }
  if ((spec.tags.empty() && spec.opening.empty()) || !begins_tags(spec)) return std::nullopt;
  return spec;
}

}  // namespace quire
