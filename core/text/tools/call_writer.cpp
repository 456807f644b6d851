#include "core/text/tools/call_writer.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/text/tools/tool_format.h"

namespace quire {
namespace {

std::string_view front_of(const std::vector<std::string_view>& texts) {
  return texts.empty() ? std::string_view() : texts.front();
}

// White space around a value is no part of it, unless it is CDATA.
std::string as_xml(const std::string& text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const bool bare = text.empty() || (kSpace.find(text.front()) == std::string_view::npos &&
                                     kSpace.find(text.back()) == std::string_view::npos);
  if (!bare && text.find("]]>") == std::string::npos) return "<![CDATA[" + text + "]]>";
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string python_of(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return dump_json(value);
  std::string out;
  for (const auto& [key, item] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += dump_json(Json(key)) + ": ";
    out += python_of(item);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

std::string_view kind_of(const Json& value) {
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "number";
}

class CallWriter {
 public:
  explicit CallWriter(const ToolFormat& format) : format_(format) {}

  std::vector<TextPiece> write(const std::vector<WrittenCall>& calls) {
    switch (format_.syntax) {
      case CallSyntax::kNone:
      case CallSyntax::kJson: write_json(calls); break;
      case CallSyntax::kNamedJson: write_named(calls); break;
      case CallSyntax::kPythonic: write_pythonic(calls); break;
      case CallSyntax::kHarmony: write_harmony(calls); break;
      case CallSyntax::kTagged:
      case CallSyntax::kBraced:
      case CallSyntax::kNestedTags: write_sections(calls); break;
    }
    return std::move(pieces_);
  }

 private:
  void put(std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().trusted != trusted) pieces_.push_back({"", trusted});
    pieces_.back().text += text;
  }
  void mark(std::string_view text) { put(text, true); }
  void text(std::string_view text) { put(text, false); }

  void write_item(const WrittenCall& call, std::size_t index) {
    if (format_.name_is_key) return text(dump_spaced_json(Json{{call.name, call.arguments}}));
    Json item = Json::object();
    if (format_.id_key != "id") item[std::string(format_.id_key)] = std::to_string(index);
    item[std::string(format_.name_key)] = call.name;
    item[std::string(format_.arguments_key)] = call.arguments;
    text(dump_spaced_json(item));
  }

  void write_list(const std::vector<WrittenCall>& calls) {
    text("[");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i > 0) text(", ");
      write_item(calls[i], i);
    }
    text("]");
  }

  // Objects behind a mark each, or a list behind one; without marks where they may be bare.
  void write_json(const std::vector<WrittenCall>& calls) {
    const bool bare = format_.bare_at_begin || format_.syntax == CallSyntax::kNone;
    const std::string_view start = bare ? std::string_view() : front_of(format_.starts);
    const std::string_view end = bare ? std::string_view() : front_of(format_.ends);
    if (format_.in_list) {
      mark(start);
      write_list(calls);
      return mark(end);
    }
    const std::string_view line = end.empty() ? std::string_view() : "\n";
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i > 0) text("\n");
      mark(start);
      text(line);
      write_item(calls[i], i);
      text(line);
      mark(end);
    }
  }

  void write_named(const std::vector<WrittenCall>& calls) {
    if (format_.in_list) {
      mark(format_.starts.front());
      return write_list(calls);
    }
    const bool section = front_of(format_.starts) != format_.name_begin;
    if (section) mark(front_of(format_.starts));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      // The first mark of such a format is the prompt's.
      if (format_.prompt_start.empty() || i > 0) mark(format_.name_begin);
      text(format_.name_is_id ? fmt::format("functions.{}:{}", calls[i].name, i) : calls[i].name);
      mark(format_.name_end);
      text(dump_spaced_json(calls[i].arguments));
      if (!format_.fence.empty()) text("\n" + std::string(format_.fence));
      mark(format_.call_end);
    }
    if (section) mark(front_of(format_.ends));
  }

  void write_pythonic(const std::vector<WrittenCall>& calls) {
    const bool bare = format_.bare_at_begin || format_.bare_anywhere;
    if (!bare) mark(front_of(format_.starts));
    text("[");
    for (const WrittenCall& call : calls) {
      text((&call == calls.data() ? "" : ", ") + call.name + "(");
      bool first = true;
      for (const auto& [key, value] : call.arguments.items()) {
        text((first ? "" : ", ") + key + "=" + python_of(value));
        first = false;
      }
      text(")");
    }
    text("]");
    if (!bare) mark(front_of(format_.ends));
  }

  // Calls behind the first are messages of their own, whose head names the call.
  void write_harmony(const std::vector<WrittenCall>& calls) {
    for (const WrittenCall& call : calls) {
      const bool first = &call == calls.data();
      mark(first ? format_.starts.front() : format_.starts.back());
      text(call.name);
      mark(first ? " <|constrain|>json<|message|>" : "<|channel|>commentary <|constrain|>json<|message|>");
      text(dump_spaced_json(call.arguments));
      mark(front_of(format_.ends));
    }
  }

  // Each call between marks of its own, all of them between the format's, where these are others.
  void write_sections(const std::vector<WrittenCall>& calls) {
    const bool braced = format_.syntax == CallSyntax::kBraced;
    const bool section = front_of(format_.starts) != format_.name_begin;
    if (section && !braced) mark(std::string(front_of(format_.starts)) + "\n");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (braced) mark(front_of(format_.starts));
      mark(format_.name_begin);
      text(calls[i].name);
      if (!format_.name_attribute.empty()) mark(fmt::format("\"{}{}\"", format_.name_attribute, i + 1));
      mark(format_.name_end);
      if (braced) {
        write_braced(calls[i].arguments);
        mark(front_of(format_.ends));
        continue;
      }
      if (format_.syntax == CallSyntax::kNestedTags) {
        write_nested(calls[i].arguments);
      } else {
        write_parameters(calls[i].arguments);
      }
      mark(std::string(format_.call_end) + (i + 1 < calls.size() || section ? "\n" : ""));
    }
    if (section && !braced) mark(front_of(format_.ends));
  }

  void write_parameters(const Json& arguments) {
    mark("\n");
    for (const auto& [key, value] : arguments.items()) {
      mark(format_.parameter_begin);
      text(key);
      if (!format_.value_attribute.empty()) {
        const std::string_view other = format_.text_word == "string" ? kind_of(value) : "false";
        mark(fmt::format("\" {}{}\"", format_.value_attribute, value.is_string() ? format_.text_word : other));
      }
      mark(format_.key_end);
      mark(format_.value_begin);
      if (format_.trims_values) mark("\n");
      const std::string written = value.is_string() ? value.get<std::string>() : dump_spaced_json(value);
      text(format_.xml_values ? as_xml(written) : written);
      if (format_.trims_values) mark("\n");
      mark(std::string(format_.parameter_end) + "\n");
    }
  }

  void write_braced(const Json& value) {
    if (value.is_string()) {
      mark(format_.string_quote);
      text(value.get<std::string>());
      return mark(format_.string_quote);
    }
    if (!value.is_structured()) return text(dump_json(value));
    text(value.is_object() ? "{" : "[");
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) text(",");
      if (value.is_object()) text(key + ":");
      write_braced(item);
      first = false;
    }
    text(value.is_object() ? "}" : "]");
  }

  void write_nested(const Json& value) {
    if (!value.is_structured()) return text(value.is_string() ? value.get<std::string>() : dump_json(value));
    for (const auto& [key, item] : value.items()) {
      const std::string tag = value.is_object() ? key : "item";
      mark(format_.tag_mark);
      text("<" + tag + ">");
      write_nested(item);
      mark(format_.tag_mark);
      text("</" + tag + ">");
    }
  }

  const ToolFormat& format_;
  std::vector<TextPiece> pieces_;
};

}  // namespace

std::vector<TextPiece> write_calls(const ToolFormat& format, const std::vector<WrittenCall>& calls) {
  return CallWriter(format).write(calls);
}

namespace {

constexpr std::size_t kShortestMark = 3;

bool has_mark(const ToolFormat& format, std::string_view token) {
  const auto holds = [token](std::string_view mark) { return mark.find(token) != std::string_view::npos; };
  for (const auto* marks : {&format.starts, &format.ends, &format.dropped, &format.answer_tags}) {
    if (std::any_of(marks->begin(), marks->end(), holds)) return true;
  }
  for (const std::string_view mark :
       {format.name_begin, format.name_end, format.call_end, format.parameter_begin, format.key_end,
        format.parameter_end, format.value_begin, format.string_quote, format.tag_mark, format.call_id,
        format.think_begin, format.think_end, format.answer_begin}) {
    if (holds(mark)) return true;
  }
  return false;
}

}  // namespace

bool is_call_mark(std::string_view token) {
  if (token.size() < kShortestMark) return false;
  const auto names = tool_format_names();
  return std::any_of(names.begin(), names.end(),
                     [token](std::string_view name) { return has_mark(*find_tool_format(name), token); });
}

}  // namespace quire
