#include "server/api/conversation/begun_calls.h"

#include <algorithm>

namespace quire {

namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Python's literals, as far as they are read: an object's and a list's items, and a name's arguments.
constexpr std::string_view kPythonValues = R"GBNF(
arg ::= name ws "=" ws value
name ::= [A-Za-z_] [A-Za-z0-9_]*
value ::= text | number | "True" | "False" | "None" | "true" | "false" | "null" | list | dict
list ::= "[" ws (value (ws "," ws value)*)? ws "]"
dict ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= text ws ":" ws value
text ::= "\"" ([^"\\\n] | "\\" ["'\\nrt])* "\"" | "'" ([^'\\\n] | "\\" ["'\\nrt])* "'"
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
ws ::= [ \n]{0,16}
)GBNF";

// "\"a\" | \"b\"": names have letters, digits and - _ . only.
std::string alternatives(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "\"" : " | \"") + name + "\"";
  return text;
}

bool is_plain(const std::string& name) {
  return !name.empty() && name.find_first_of("\"\\\n<>{}") == std::string::npos;
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
    spec.triggers.push_back(tag.begin);
    spec.tags.push_back(std::move(tag));
  }
}

// Between the quotes of the format, whose first character is kept out of the text as a whole.
void add_braced(const ToolFormat& format, const std::vector<std::string>& names, GrammarSpec& spec) {
  StructuralTag tag{std::string(format.starts.front()), "", first_of(format.ends)};
  std::string quote;
  for (const char c : format.string_quote)
    quote += c == '"' ? std::string("\\\"") : std::string(1, c);
  tag.rules = "root ::= \"" + std::string(format.name_begin) + "\" (" + alternatives(names) + ") object\n" +
              "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\n" + "pair ::= [A-Za-z_] [A-Za-z0-9_-]* \":\" value\n" +
              "value ::= text | number | \"true\" | \"false\" | \"null\" | list | object\n" +
              "list ::= \"[\" (value (\",\" value)*)? \"]\"\n" + "text ::= \"" + quote + "\" [^<]* \"" + quote +
              "\"\n" + "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)?\n";
  spec.triggers.push_back(tag.begin);
  spec.tags.push_back(std::move(tag));
}

}  // namespace

std::optional<GrammarSpec> begun_calls_spec(const ToolFormat& format, const std::vector<std::string>& names,
                                            bool parallel) {
  const std::string_view trigger = format.frame.trigger;
  const bool is_marked = !trigger.empty() && trigger.front() != '{' && trigger.front() != '[';
  if (!is_marked || names.empty() || !std::all_of(names.begin(), names.end(), is_plain)) return std::nullopt;
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kStructural;
  spec.parallel = parallel;
  if (format.json_calls()) {
    add_json(format, names, spec);
  } else if (format.syntax == CallSyntax::kTagged) {
    add_tagged(format, names, spec);
  } else if (format.syntax == CallSyntax::kBraced) {
    add_braced(format, names, spec);
  }
  // A format that begins its calls in a way that none of its tags has is left free.
  const auto begins_tag = [&](const std::string& each) {
    return std::any_of(spec.tags.begin(), spec.tags.end(),
                       [&](const auto& tag) { return tag.begin.size() >= each.size() && tag.begin.starts_with(each); });
  };
  if (spec.tags.empty() || !std::all_of(spec.triggers.begin(), spec.triggers.end(), begins_tag)) return std::nullopt;
  return spec;
}

}  // namespace quire
