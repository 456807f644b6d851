#include <algorithm>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

// soft_str: markup is unchanged, all other values become str().
Value soft(Evaluator& evaluator, const Value& input) {
  return input.is_string() ? input : Value::string(to_text(evaluator, input));
}

template <const char* const& Name>
Value filter_method(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Value text = soft(evaluator, input);
  return find_method(text, Name)(evaluator, text, arguments);
}
constexpr const char* kUpper = "upper";
constexpr const char* kLower = "lower";
constexpr const char* kCapitalize = "capitalize";

Value filter_trim(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("trim", arguments, "chars");
  const Text text = to_text(evaluator, input);
  if (!bound.has(0) || bound[0].is_none()) return Value::string(strip(text, nullptr, Side::kBoth), input.is_markup());
  const std::string characters = bound.text(0, "").bytes();
  return Value::string(strip(text, &characters, Side::kBoth), input.is_markup());
}

// Words begin after white space, a hyphen or an opening bracket.
Value filter_title(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("title", arguments, "");
  const Text text = to_text(evaluator, input);
  const auto is_break = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  Text out;
  bool at_start = true;
  for (std::size_t i = 0; i < text.size();) {
    const bool trusted = text.trusted_at(i);
    const char32_t c = next_code_point(text.bytes(), i);
    out.append(at_start ? upper_of(c) : lower_of(c), trusted);
    at_start = is_break(c);
  }
  return Value::string(std::move(out), input.is_markup());
}

Value filter_replace(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("replace", arguments, "old,new,count", 2);
  const Integer count = bound.has(2) && !bound[2].is_none() ? bound.integer(2, -1) : -1;
  return Value::string(replace(evaluator, to_text(evaluator, input), to_text(evaluator, bound[0]).bytes(),
                               to_text(evaluator, bound[1]), count),
                       input.is_markup());
}

Value filter_string(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("string", arguments, "");
  return soft(evaluator, input);
}

Value filter_escape(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("escape", arguments, "");
  return input.is_markup() ? input : Value::string(escape_html(to_text(evaluator, input)), true);
}

Value filter_forceescape(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("forceescape", arguments, "");
  return Value::string(escape_html(to_text(evaluator, input)), true);
}

Value filter_safe(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("safe", arguments, "");
  return Value::string(to_text(evaluator, input), true);
}

Value filter_format(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  if (!arguments.keywords.empty() && !arguments.positional.empty())
    fail("can't handle positional and keyword arguments at the same time");
  if (arguments.keywords.empty())
    return percent_format(evaluator, soft(evaluator, input), Value::tuple(arguments.positional));
  Dict named;
  for (const auto& [name, value] : arguments.keywords)
    named.set(Value::string(name), value);
  return percent_format(evaluator, soft(evaluator, input), Value::dict(std::move(named)));
}

Value filter_wordcount(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, "");
  const std::string text = to_text(evaluator, input).bytes();
  std::size_t count = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const bool word = is_word(next_code_point(text, i));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::count(count);
}

// Percent-encodes a text's UTF-8 bytes except letters, digits, "_.-~" and `safe`.
void append_quoted(Text& out, const Text& text, std::string_view safe) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  static constexpr std::string_view kUnreserved = "_.-~";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain || kUnreserved.find(c) != std::string_view::npos || safe.find(c) != std::string_view::npos) {
      out.append(text, i, 1);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out.append(std::string{'%', kHex[byte >> 4], kHex[byte & 15]}, text.trusted_at(i));
    }
  }
}

Value filter_urlencode(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, "");
  Text out;
  if (!input.is_dict() && !input.is_sequence() && !input.is_range()) {
    append_quoted(out, to_text(evaluator, input), "/");
    return Value::string(std::move(out));
  }
  const Value pairs = input.is_dict() ? find_method(input, "items")(evaluator, input, {}) : input;
  const auto append_field = [&evaluator, &out](const Value& value) {
    Text quoted;
    append_quoted(quoted, to_text(evaluator, value), " ");
    out.append(replace(evaluator, quoted, " ", Text("+", true), -1));
  };
  for (const auto& item : evaluator.iterate(pairs)) {
    const auto pair = evaluator.iterate(item);
    if (pair.size() != 2) fail("urlencode needs pairs of key and value");
    if (!out.empty()) out.append("&", true);
    append_field(pair[0]);
    out.append("=", true);
    append_field(pair[1]);
  }
  return Value::string(std::move(out));
}

// Removes tags and comments, and folds white space.
Value filter_striptags(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("striptags", arguments, "");
  const Text text = to_text(evaluator, input);
  evaluator.charge(text.size());
  Text plain;
  for (std::size_t i = 0; i < text.size();) {
    const bool comment = text.bytes().compare(i, 4, "<!--") == 0;
    const std::size_t end = text.bytes()[i] == '<' ? text.bytes().find(comment ? "-->" : ">", i) : std::string::npos;
    if (end == std::string::npos) {
      plain.append(text, i++, 1);
    } else {
      i = end + (comment ? 3 : 1);
    }
  }
  const Value words = find_method(Value::string(Text()), "split")(evaluator, Value::string(plain), {});
  Text folded;
  for (const auto& word : words.items()) {
    if (!folded.empty()) folded.append(" ", true);
    folded.append(word.text());
  }
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},    {"&gt;", ">"},          {"&#39;", "'"}, {"&#34;", "\""},
      {"&quot;", "\""}, {"&nbsp;", "\xC2\xA0"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) {
    // A character from the client's entity is the client's.
    const bool trusted = folded.pieces().size() <= 1 && (folded.empty() || folded.trusted_at(0));
    folded = replace(evaluator, folded, std::string(entity), Text(std::string(character), trusted), -1);
  }
  return Value::string(std::move(folded));
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", filter_method<kUpper>},
    {"lower", filter_method<kLower>},
    {"capitalize", filter_method<kCapitalize>},
    {"trim", filter_trim},
    {"title", filter_title},
    {"replace", filter_replace},
    {"string", filter_string},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_forceescape},
    {"safe", filter_safe},
    {"format", filter_format},
    {"wordcount", filter_wordcount},
    {"urlencode", filter_urlencode},
    {"striptags", filter_striptags},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace quire::jinja
