// Filters that lay text out: indent, center, truncate, wordwrap, tojson, pprint, xmlattr.
#include <algorithm>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

Text spaces(Evaluator& evaluator, Integer count) {
  if (count > static_cast<Integer>(1) << 32) fail("the width is too large");
  const auto width = static_cast<std::size_t>(std::max<Integer>(count, 0));
  evaluator.check_length(width);
  return Text(std::string(width, ' '), true);
}

Value filter_center(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("center", arguments, "width");
  const Value text = Value::string(to_text(evaluator, input), input.is_markup());
  return find_method(text, "center")(evaluator, text, {{Value::integer(bound.integer(0, 80))}, {}});
}

Value filter_indent(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("indent", arguments, "width,first,blank");
  if (input.is_undefined()) fail(input.undefined_reason());
  if (!input.is_string()) fail("indent needs a str, not " + type_name(input));
  const bool given = bound.has(0) && bound[0].is_string();
  const Text indention = given ? bound[0].text() : spaces(evaluator, bound.integer(0, 4));
  Text text = input.text();
  text.append("\n", true);
  Text out;
  bool first = true;
  for (const auto& line : split_lines(text, false)) {
    if (!first) out.append("\n", true);
    const bool indented = first ? bound.flag(1) : bound.flag(2) || !line.empty();
    if (indented) out.append(indention);
    out.append(line);
    evaluator.check_length(out.size());
    first = false;
  }
  evaluator.charge(out.size() / 32);
  return Value::string(std::move(out), input.is_markup());
}

// Returns the value if it is short enough. Python takes the length of any value; only longer ones must be strings.
Value untruncated(const Value& input, const Bound& bound) {
  const auto length = length_of(input);
  if (!length) fail("object of type '" + type_name(input) + "' has no len()");
  const Integer leeway = bound.has(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  if (static_cast<Integer>(*length) > bound.integer(0, 255) + leeway)
    fail("truncate needs a str, not " + type_name(input));
  return input;
}

Value filter_truncate(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("truncate", arguments, "length,killwords,end,leeway");
  const Value text = input.is_undefined() ? Value::string(Text()) : input;
  if (!text.is_string()) return untruncated(input, bound);
  const Text end = bound.text(2, "...");
  const Integer length = bound.integer(0, 255);
  const Integer leeway = bound.has(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  const auto end_length = static_cast<Integer>(num_code_points(end.bytes()));
  if (length < end_length) fail("expected length >= the length of the end marker");
  if (leeway < 0) fail("expected leeway >= 0");
  const auto offsets = code_point_offsets(text.bytes());
  evaluator.charge(text.text().size() / 32);
  if (static_cast<Integer>(offsets.size()) - 1 <= length + leeway) return input;
  Text kept = text.text().part(0, offsets[static_cast<std::size_t>(length - end_length)]);
  if (!bound.flag(1)) {
    const std::size_t space = kept.bytes().rfind(' ');
    if (space != std::string::npos) kept = kept.part(0, space);
  }
  kept.append(end);
  return Value::string(std::move(kept), input.is_markup());
}

// Splits a line into words and the white space between them, words also after hyphens between letters (textwrap's
// chunks).
std::vector<Text> wrap_chunks(const Text& line, bool at_hyphens) {
  std::vector<Text> chunks;
  const std::string& bytes = line.bytes();
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto is_letter = [&bytes](std::size_t i) {
    return i < bytes.size() &&
           (std::isalpha(static_cast<unsigned char>(bytes[i])) != 0 || static_cast<unsigned char>(bytes[i]) >= 0x80);
  };
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin + 1;
    const bool blank = is_blank(bytes[begin]);
    while (end < bytes.size() && is_blank(bytes[end]) == blank) {
      const bool hyphen = at_hyphens && !blank && bytes[end - 1] == '-' && end >= begin + 3 && is_letter(end - 2) &&
                          is_letter(end - 3) && is_letter(end) && is_letter(end + 1);
      if (hyphen) break;
      ++end;
    }
    chunks.push_back(line.part(begin, end - begin));
    begin = end;
  }
  return chunks;
}

bool is_blank_chunk(const Text& chunk) {
  return strip(chunk, nullptr, Side::kBoth).empty();
}

class LineWrapper {
 public:
  LineWrapper(std::size_t width, bool break_long_words) : width_(width), break_long_words_(break_long_words) {}

  std::vector<Text> wrap(std::vector<Text> chunks) {
    std::reverse(chunks.begin(), chunks.end());
    std::vector<Text> lines;
    while (!chunks.empty()) {
      if (is_blank_chunk(chunks.back()) && !lines.empty()) chunks.pop_back();
      std::vector<Text> line = take_line(chunks);
      if (!line.empty() && is_blank_chunk(line.back())) line.pop_back();
      if (line.empty()) continue;
      Text joined;
      for (const auto& chunk : line)
        joined.append(chunk);
      lines.push_back(std::move(joined));
    }
    return lines;
  }

 private:
  std::vector<Text> take_line(std::vector<Text>& chunks) const {
    std::vector<Text> line;
    std::size_t length = 0;
    while (!chunks.empty()) {
      const std::size_t next = num_code_points(chunks.back().bytes());
      if (length + next > width_) break;
      line.push_back(std::move(chunks.back()));
      chunks.pop_back();
      length += next;
    }
    if (!chunks.empty() && num_code_points(chunks.back().bytes()) > width_) break_long(chunks, line, length);
    return line;
  }

  void break_long(std::vector<Text>& chunks, std::vector<Text>& line, std::size_t length) const {
    if (break_long_words_) {
      const std::size_t room = width_ > length ? width_ - length : 1;
      const auto offsets = code_point_offsets(chunks.back().bytes());
      const std::size_t cut = offsets[std::min(room, offsets.size() - 1)];
      line.push_back(chunks.back().part(0, cut));
      chunks.back() = chunks.back().part(cut);
    } else if (line.empty()) {
      line.push_back(std::move(chunks.back()));
      chunks.pop_back();
    }
  }

  std::size_t width_;
  bool break_long_words_;
};

Value filter_wordwrap(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("wordwrap", arguments, "width,break_long_words,wrapstring,break_on_hyphens");
  if (input.is_undefined()) fail(input.undefined_reason());
  if (!input.is_string()) fail("wordwrap needs a str, not " + type_name(input));
  const Integer width = bound.integer(0, 79);
  if (width <= 0 || width > 1 << 30) fail("invalid width (must be > 0)");
  const Text separator = bound.has(2) && !bound[2].is_none() ? bound.text(2, "\n") : Text("\n", true);
  evaluator.charge(input.text().size());
  Text out;
  bool first = true;
  for (const auto& line : split_lines(input.text(), false)) {
    auto wrapped =
        LineWrapper(static_cast<std::size_t>(width), bound.flag(1, true)).wrap(wrap_chunks(line, bound.flag(3, true)));
    if (wrapped.empty()) wrapped.emplace_back();
    for (const auto& piece : wrapped) {
      if (!first) out.append(separator);
      out.append(piece);
      evaluator.check_length(out.size());
      first = false;
    }
  }
  return Value::string(std::move(out), input.is_markup());
}

Value filter_tojson(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("tojson", arguments, "ensure_ascii,indent,separators,sort_keys");
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (bound.has(1) && !bound[1].is_none()) {
    style.indent = bound[1].is_string() ? bound[1].text() : spaces(evaluator, bound.integer(1, 0));
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2].is_none()) {
    const auto separators = evaluator.iterate(bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      fail("separators must be two strings");
    style.item_separator = separators[0].bytes();
    style.key_separator = separators[1].bytes();
  }
  Text text = dump_json(evaluator, input, style);
  evaluator.check_length(text.size());
  return Value::string(std::move(text));
}

Value filter_pprint(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("pprint", arguments, "");
  constexpr std::size_t kLineWidth = 80;
  Text text = repr(evaluator, input, true);
  if (text.size() > kLineWidth && (input.is_dict() || input.is_sequence()))
    fail("pprint of a value wider than a line is not supported");
  return Value::string(std::move(text));
}

Value filter_xmlattr(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("xmlattr", arguments, "autospace");
  if (!input.is_dict()) fail("xmlattr needs a mapping, not " + type_name(input));
  Text out;
  for (const auto& [key, value] : input.dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    const Text name = to_text(evaluator, key);
    if (name.bytes().find_first_of(" \t\n\f\r/>=") != std::string::npos)
      fail("Invalid character in attribute name: '" + name.bytes() + "'");
    if (!out.empty() || bound.flag(0, true)) out.append(" ", true);
    out.append(escape_html(name));
    out.append("=\"", true);
    out.append(value.is_markup() ? value.text() : escape_html(to_text(evaluator, value)));
    out.append("\"", true);
  }
  return Value::string(std::move(out));
}

constexpr FilterEntry kLayoutFilters[] = {
    {"center", filter_center}, {"indent", filter_indent}, {"truncate", filter_truncate}, {"wordwrap", filter_wordwrap},
    {"tojson", filter_tojson}, {"pprint", filter_pprint}, {"xmlattr", filter_xmlattr},
};

}  // namespace

std::span<const FilterEntry> layout_filters() {
  return kLayoutFilters;
}

}  // namespace quire::jinja
