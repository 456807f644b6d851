#include "server/api/conversation/call_grammar.h"

#include <algorithm>

namespace quire {

namespace {

constexpr const char* kAnyObject = R"({"type":"object"})";
constexpr const char* kAnyArguments = "arguments";

// Rules that every format may use.
constexpr const char* kCommonRules = R"GBNF(
ws ::= [ \t\r\n]*
id ::= "\"" [^"\\\x00-\x1f]* "\"" | "0" | [1-9] [0-9]{0,8}
)GBNF";

// The text as a literal of GBNF; an empty text gives nothing.
std::string literal(std::string_view text) {
  if (text.empty()) return "";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + "\" ";
}

std::string optional(std::string_view text) {
  return text.empty() ? "" : "(" + literal(text) + ")? ";
}

// ("a" | "b").
std::string any_literal(std::vector<std::string_view> texts) {
  std::string all;
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  for (const std::string_view text : texts)
    all += (all.empty() ? "(" : "| ") + literal(text);
  return all + ") ";
}

// A text of a regular expression.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(".*+?()[]{}^$|/\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

bool is_plain(const CalledTool& tool) {
  return !tool.name.empty() && tool.name.find_first_of("\"\\\n<>{}") == std::string::npos;
}

ArgumentForm form_of(const ToolFormat& format) {
  ArgumentForm form;
  switch (format.syntax) {
    case CallSyntax::kTagged: form.kind = ArgumentForm::Kind::kTagged; break;
    case CallSyntax::kBraced: form.kind = ArgumentForm::Kind::kBraced; break;
    case CallSyntax::kPythonic: form.kind = ArgumentForm::Kind::kPython; break;
    case CallSyntax::kNestedTags: form.kind = ArgumentForm::Kind::kXml; break;
    default: return form;
  }
  form.key_begin = format.parameter_begin;
  form.key_end = format.key_end;
  form.value_begin = format.value_begin;
  form.value_end = format.parameter_end;
  form.call_end = format.call_end.substr(format.tag_mark.size());
  form.ends.assign(format.ends.begin(), format.ends.end());
  form.attribute = format.value_attribute;
  form.text_word = format.text_word;
  form.own_lines = format.trims_values;
  form.quote = format.string_quote;
  form.mark = format.tag_mark;
  return form;
}

// Tools with equal arguments.
struct ToolGroup {
  std::vector<std::string_view> names;
  std::string arguments;  // the rule's name
};

class CallGrammar {
 public:
  CallGrammar(const ToolFormat& format, const std::vector<CalledTool>& tools, bool parallel) : format_(format) {
    spec_.kind = GrammarSpec::Kind::kStructural;
    spec_.parallel = parallel;
    spec_.spaced = true;
    spec_.stops = format.ends_output;
    for (const CalledTool& tool : tools)
      add_tool(tool);
    for (const std::string_view name : format.answer_names)
      group(kAnyArguments, kAnyObject, false).names.push_back(name);
  }

  std::optional<GrammarSpec> run() {
    switch (format_.syntax) {
      case CallSyntax::kNone: return std::nullopt;
      case CallSyntax::kJson: format_.bare_at_begin ? add_bare_json() : add_marked_json(); break;
      case CallSyntax::kNamedJson: add_named(); break;
      case CallSyntax::kPythonic: add_pythonic(); break;
      case CallSyntax::kHarmony: add_harmony(); break;
      case CallSyntax::kTagged:
      case CallSyntax::kNestedTags: add_tagged(); break;
      case CallSyntax::kBraced: add_braced(); break;
    }
    if (spec_.tags.empty() && spec_.openings.empty()) return std::nullopt;
    spec_.answer_begin = format_.answer_begin;
    return std::move(spec_);
  }

 private:
  ToolGroup& group(const std::string& rule, const std::string& schema, bool exact) {
    const auto found =
        std::find_if(groups_.begin(), groups_.end(), [&](const ToolGroup& known) { return known.arguments == rule; });
    if (found != groups_.end()) return *found;
    spec_.arguments.push_back({rule, form_of(format_), schema, exact});
    groups_.push_back({{}, rule});
    return groups_.back();
  }

  void add_tool(const CalledTool& tool) {
    const bool any = tool.schema.empty();
    const std::string rule = any ? kAnyArguments : "arguments-" + std::to_string(groups_.size());
    group(rule, any ? kAnyObject : tool.schema, tool.exact).names.push_back(tool.name);
  }

  // (a|b) as a regular expression.
  static std::string any_name(const ToolGroup& tools) {
    std::string names;
    for (const std::string_view name : tools.names)
      names += (names.empty() ? "(" : "|") + escaped(name);
    return names + ")";
  }

  // A name, `between`, and the arguments of a tool of that name.
  std::string named_call(const std::string& between) const {
    std::string all;
    for (const ToolGroup& each : groups_)
      all += (all.empty() ? "(" : " | ") + any_literal(each.names) + between + each.arguments;
    return all + ") ";
  }

  void add_tag(std::string_view begin, const std::string& rules, std::string_view end) {
    StructuralTag tag{std::string(begin), "", std::string(end), rules + "\n" + kCommonRules};
    spec_.triggers.push_back(tag.begin);
    spec_.tags.push_back(std::move(tag));
  }

  std::string more(const std::string& item) const { return spec_.parallel ? "(" + item + ")* " : ""; }

  // The end of calls, as a rule or as the required text.
  std::string_view end() const { return format_.ends.empty() || format_.may_lack_end ? "" : format_.ends.front(); }
  std::string optional_end() const {
    return format_.may_lack_end && !format_.ends.empty() ? "(ws " + literal(format_.ends.front()) + ")? " : "";
  }

  // A member's key of a JSON object up to its value.
  static std::string json_key(std::vector<std::string_view> names) {
    return "\"\\\"\" " + any_literal(std::move(names)) + "\"\\\"\" ws \":\" ws ";
  }
  std::string name_key() const { return json_key({format_.name_key, "name"}); }
  std::string arguments_key() const { return json_key({format_.arguments_key, "arguments", "parameters"}); }

  // {"name": ..., "arguments": ...} from the name's end on.
  std::string json_rest() const { return "\"\\\"\" ws \",\" ws " + arguments_key(); }

  std::string json_item() const {
    if (format_.name_is_key) return "\"{\" ws \"\\\"\" " + named_call("\"\\\"\" ws \":\" ws ") + "ws \"}\" ";
    const std::string id = json_key({format_.id_key, "id"}) + "id ws ";
    return "\"{\" ws (" + id + "\",\" ws)? " + name_key() + "\"\\\"\" " + named_call(json_rest()) + "ws (\",\" ws " +
           id + ")? \"}\" ";
  }

  std::string json_list() const { return "ws \"[\" ws item ws " + more("\",\" ws item ws") + "\"]\" "; }

  // JSON objects after each mark: one or, if the format allows it, in a list.
  void add_marked_json() {
    const std::string item = "item ::= " + json_item();
    if (!format_.list_mark.empty()) {
      add_tag(format_.list_mark, "root ::= ws item ws " + more("\",\" ws item ws") + "\"]\"\n" + item, "");
      return;
    }
    std::string one = format_.lists_only ? "" : "ws item ";
    if (format_.in_list) one = json_list() + (one.empty() ? "" : "| " + one);
    for (const std::string_view start : format_.starts)
      add_tag(start, "root ::= (" + one + ") ws " + optional_end() + "\n" + item, end());
  }

  // JSON that begins the text: an object with a tool's name, or a list of them.
  void add_bare_json() {
    const std::string space = R"([ \t\r\n]*)";
    std::string begin = space;
    if (format_.bare_anywhere) begin += "(" + escaped(format_.starts.front()) + space + ")?";
    if (format_.in_list) begin += "\\[" + space;
    begin += "\\{" + space + "\"" + std::string(format_.name_key) + "\"" + space + ":" + space + "\"";
    const std::string between = format_.in_list ? "\",\" ws " : "(\",\" | \";\")? ws ";
    for (const ToolGroup& each : groups_) {
      const std::string rest = "ws \",\" ws " + arguments_key() + each.arguments + " ws \"}\" ws ";
      spec_.openings.push_back({begin + any_name(each) + "\"", "root ::= " + rest + more(between + "item ws") +
                                                                   (format_.in_list ? "\"]\" ws" : "") +
                                                                   "\nitem ::= " + json_item() + "\n" + kCommonRules});
    }
  }

  // The name as text and JSON after it: alone after its mark, or in a section of several.
  void add_named() {
    if (format_.may_be_list) return add_mistral();
    if (!format_.prompt_start.empty()) return add_prompted();
    const bool section = format_.starts.front() != format_.name_begin;
    const std::string name = format_.name_is_id ? "\"functions.\" " : "";
    const std::string middle = (format_.name_is_id ? "\":\" [0-9]{1,4} " : "") + literal(format_.name_end) + "ws ";
    const std::string fence = format_.fence.empty() ? "" : "(" + literal(format_.fence) + "ws)? ";
    const std::string open = name + named_call(middle) + "ws " + fence;
    const std::string call = open + literal(format_.call_end);
    for (const std::string_view start : format_.starts) {
      if (start == format_.name_begin) {
        add_tag(start, "root ::= ws " + (section ? open + optional(format_.call_end) : call), "");
      } else {
        add_tag(start, "root ::= ws call " + more("ws call") + "ws\ncall ::= " + literal(format_.name_begin) + call,
                end());
      }
    }
  }

  // Mistral's: a name and its arguments after each mark, or a list of objects after the first.
  void add_mistral() {
    const std::string middle =
        "ws (" + literal(format_.call_id) + "ws [A-Za-z0-9_-]{1,64} ws)? " + optional(format_.name_end) + "ws ";
    add_tag(format_.starts.front(),
            "root ::= ws " + named_call(middle) + "| " + json_list() + "\nitem ::= " + json_item(), "");
  }

  // The first call's mark ends the prompt; after other marks of the kind, content may follow.
  void add_prompted() {
    add_tag(format_.starts.front(), "root ::= " + named_call(literal(format_.name_end) + "ws ") + "ws | \"all\\n\"",
            "");
    for (const ToolGroup& each : groups_) {
      for (const std::string_view name : each.names) {
        const std::string begin = std::string(name) + std::string(format_.name_end);
        const std::string rest = "root ::= ws " + each.arguments + " ws";
        const std::string further = literal(format_.name_begin) + named_call(literal(format_.name_end) + "ws ") + "ws ";
        spec_.openings.push_back({escaped(begin), rest + " " + more(further) + "\n" + kCommonRules});
      }
    }
  }

  void add_harmony() {
    const std::string header =
        "(\" \"? \"<|channel|>\" (\"commentary\" | \"analysis\"))? (\" \"? \"<|constrain|>json\" | \" json\")? \" \"? "
        "\"<|message|>\" ws ";
    const std::string call = named_call(header) + optional_end();
    for (const std::string_view start : format_.starts)
      add_tag(start, "root ::= " + call, "");
    // The first start mark may be the end of the prompt; the text then begins behind it.
    for (const ToolGroup& each : groups_) {
      spec_.openings.push_back({" ?to=functions\\." + any_name(each),
                                "root ::= " + header + each.arguments + " " + optional_end() + "\n" + kCommonRules});
    }
  }

  void add_tagged() {
    const std::string attribute =
        format_.name_attribute.empty() ? "" : "\"\\\"\" (" + literal(format_.name_attribute) + "[0-9]{1,4} \"\\\"\")? ";
    const std::string call = named_call(attribute + literal(format_.name_end));
    for (const std::string_view start : format_.starts) {
      if (start == format_.name_begin) {
        add_tag(start, "root ::= " + call, "");
      } else {
        add_tag(start, "root ::= ws call " + more("ws call") + "ws\ncall ::= " + literal(format_.name_begin) + call,
                end());
      }
    }
  }

  void add_braced() {
    for (const std::string_view start : format_.starts)
      add_tag(start, "root ::= ws " + literal(format_.name_begin) + named_call("") + "ws", end());
  }

  // Calls between the format's marks, in brackets or not; if calls need no marks, in brackets at the text's beginning
  // or anywhere.
  void add_pythonic() {
    const std::string call = "call ::= " + named_call("ws \"(\" ws ") + "\n";
    const std::string calls = "calls ::= call " + more("ws \",\" ws call") + "ws\n" + call;
    for (const std::string_view start : format_.starts)
      add_tag(start, "root ::= ws (\"[\" ws calls \"]\" ws | calls)\n" + calls, end());
    if (!format_.bare_at_begin && !format_.bare_anywhere) return;
    spec_.opening_anywhere = format_.bare_anywhere;
    const std::string space = R"([ \t\r\n]*)";
    const std::string end = std::string("\"]\"") + (format_.bare_anywhere ? "" : " ws");
    for (const ToolGroup& each : groups_) {
      spec_.openings.push_back(
          {(format_.bare_anywhere ? "" : space) + "\\[" + space + any_name(each) + space + "\\(",
           "root ::= ws " + each.arguments + " ws " + more("\",\" ws call ws") + end + "\n" + call + kCommonRules});
    }
  }

  const ToolFormat& format_;
  GrammarSpec spec_;
  std::vector<ToolGroup> groups_;
};

}  // namespace

std::optional<GrammarSpec> call_grammar_spec(const ToolFormat& format, const std::vector<CalledTool>& tools,
                                             bool parallel) {
  if (tools.empty() || !std::all_of(tools.begin(), tools.end(), is_plain)) return std::nullopt;
  return CallGrammar(format, tools, parallel).run();
}

}  // namespace quire
