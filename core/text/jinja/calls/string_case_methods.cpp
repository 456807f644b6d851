#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {

Text map_case(const Text& text, std::string (*map)(char32_t)) {
  Text out;
  const std::string& bytes = text.bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    const bool trusted = text.trusted_at(i);
    out.append(map(next_code_point(bytes, i)), trusted);
  }
  return out;
}

namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
const std::string kFinalSigma = "\xCF\x82";

// A capital sigma that ends a word has its own small letter.
bool is_final_sigma(const std::string& bytes, std::size_t begin, std::size_t end) {
  const auto cased_before = [&bytes](std::size_t position) {
    while (position > 0) {
      --position;
      if ((static_cast<unsigned char>(bytes[position]) & 0xC0) == 0x80) continue;
      std::size_t at = position;
      const char32_t c = next_code_point(bytes, at);
      if (c != '\'' && c != '.') return is_cased(c);
    }
    return false;
  };
  std::size_t after = end;
  return cased_before(begin) && (after >= bytes.size() || !is_cased(next_code_point(bytes, after)));
}

}  // namespace

Text to_lower(const Text& text) {
  Text out;
  const std::string& bytes = text.bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(bytes, i);
    const bool sigma = c == kCapitalSigma && is_final_sigma(bytes, begin, i);
    out.append(sigma ? kFinalSigma : lower_of(c), text.trusted_at(begin));
  }
  return out;
}

Text capitalize(const Text& text) {
  if (text.empty()) return text;
  std::size_t end = 0;
  const std::string first = title_of(next_code_point(text.bytes(), end));
  Text out(first, text.trusted_at(0));
  // Lower-cased together with the first character, which decides on a final sigma.
  out.append(to_lower(text).part(to_lower(text.part(0, end)).size()));
  return out;
}

namespace {

Value result(const Value& self, Text text) {
  return Value::string(std::move(text), self.is_markup());
}

Value method_upper(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("upper", arguments, "");
  return result(self, map_case(self.text(), upper_of));
}

Value method_lower(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("lower", arguments, "");
  return result(self, to_lower(self.text()));
}

Value method_capitalize(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("capitalize", arguments, "");
  return result(self, capitalize(self.text()));
}

Value method_title(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("title", arguments, "");
  const Text& text = self.text();
  Text out;
  bool inside_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text.bytes(), i);
    const bool sigma = inside_word && c == kCapitalSigma && is_final_sigma(text.bytes(), begin, i);
    out.append(sigma ? kFinalSigma : inside_word ? lower_of(c) : title_of(c), text.trusted_at(begin));
    inside_word = is_cased(c);
  }
  return result(self, std::move(out));
}

std::string swap_case(char32_t c) {
  return is_upper(c) ? lower_of(c) : upper_of(c);
}

Value method_swapcase(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("swapcase", arguments, "");
  return result(self, map_case(self.text(), swap_case));
}

Value method_casefold(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("casefold", arguments, "");
  return result(self, map_case(self.text(), folded));
}

// True if the string has characters and all of them have the property.
template <bool (*Property)(char32_t)>
Value method_all(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("is...", arguments, "");
  const std::string& bytes = self.bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    if (!Property(next_code_point(bytes, i))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}

bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
}

template <bool Upper>
Value method_is_case(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound(Upper ? "isupper" : "islower", arguments, "");
  bool any = false;
  for (std::size_t i = 0; i < self.bytes().size();) {
    const char32_t c = next_code_point(self.bytes(), i);
    if (Upper ? (is_lower(c) || is_title(c)) : (is_upper(c) || is_title(c))) return Value::boolean(false);
    any |= Upper ? is_upper(c) : is_lower(c);
  }
  return Value::boolean(any);
}

Value method_istitle(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("istitle", arguments, "");
  bool any = false;
  bool inside_word = false;
  for (std::size_t i = 0; i < self.bytes().size();) {
    const char32_t c = next_code_point(self.bytes(), i);
    const bool starts = is_upper(c) || is_title(c);
    if ((starts && inside_word) || (is_lower(c) && !inside_word)) return Value::boolean(false);
    inside_word = is_cased(c);
    any |= inside_word;
  }
  return Value::boolean(any);
}

Value method_isascii(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("isascii", arguments, "");
  return Value::boolean(is_ascii(self.bytes()));
}

Value method_isprintable(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("isprintable", arguments, "");
  for (std::size_t i = 0; i < self.bytes().size();) {
    if (!is_printable(next_code_point(self.bytes(), i))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

Value method_isidentifier(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("isidentifier", arguments, "");
  const std::string& bytes = self.bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    const bool first = i == 0;
    const char32_t c = next_code_point(bytes, i);
    if (!is_word(c) || (first && is_numeric(c))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}

template <Side Which>
Value method_strip(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, "chars,/");
  if (!bound.has(0) || bound[0].is_none()) return result(self, strip(self.text(), nullptr, Which));
  const std::string characters = bound.text(0, "").bytes();
  return result(self, strip(self.text(), &characters, Which));
}

template <char Align>
Value method_justify(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound(Align == '<' ? "ljust" : Align == '>' ? "rjust" : "center", arguments, "width,fillchar,/", 1);
  const Integer width = bound.integer(0, 0);
  const Text fill = bound.text(1, " ");
  if (num_code_points(fill.bytes()) != 1) fail("The fill character must be exactly one character long");
  const std::size_t length = num_code_points(self.bytes());
  if (width <= static_cast<Integer>(length)) return self;
  if (width > static_cast<Integer>(1) << 32) fail("the width is too large");
  evaluator.check_length(static_cast<std::size_t>(width));
  const std::size_t missing = static_cast<std::size_t>(width) - length;
  // CPython puts the odd space of a centred text's padding on the left if the width is odd too.
  const std::size_t left = Align == '<'   ? 0
                           : Align == '>' ? missing
                                          : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  Text out;
  for (std::size_t i = 0; i < left; ++i)
    out.append(fill);
  out.append(self.text());
  for (std::size_t i = left; i < missing; ++i)
    out.append(fill);
  return result(self, std::move(out));
}

Value method_zfill(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, "width,/", 1);
  const Integer width = bound.integer(0, 0);
  const std::size_t length = num_code_points(self.bytes());
  if (width <= static_cast<Integer>(length)) return self;
  if (width > static_cast<Integer>(1) << 32) fail("the width is too large");
  evaluator.check_length(static_cast<std::size_t>(width));
  const std::string& bytes = self.bytes();
  const std::size_t sign = !bytes.empty() && (bytes[0] == '-' || bytes[0] == '+') ? 1 : 0;
  Text out = self.text().part(0, sign);
  out.append(std::string(static_cast<std::size_t>(width) - length, '0'), true);
  out.append(self.text(), sign, std::string::npos);
  return result(self, std::move(out));
}

Value method_expandtabs(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("expandtabs", arguments, "tabsize");
  const Integer size = bound.integer(0, 8);
  if (size > 1000) fail("the tab size is too large");
  Text out;
  Integer column = 0;
  for (std::size_t i = 0; i < self.bytes().size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(self.bytes(), i);
    if (c == '\t') {
      const Integer spaces = size > 0 ? size - column % size : 0;
      out.append(std::string(static_cast<std::size_t>(spaces), ' '), self.text().trusted_at(begin));
      column += spaces;
    } else {
      out.append(self.text(), begin, i - begin);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    evaluator.check_length(out.size());
  }
  return result(self, std::move(out));
}

constexpr MethodEntry kCaseMethods[] = {
    {"upper", method_upper},
    {"lower", method_lower},
    {"capitalize", method_capitalize},
    {"title", method_title},
    {"swapcase", method_swapcase},
    {"casefold", method_casefold},
    {"isalpha", method_all<is_alpha>},
    {"isdigit", method_all<is_digit>},
    {"isdecimal", method_all<is_decimal>},
    {"isnumeric", method_all<is_numeric>},
    {"isalnum", method_all<is_alphanumeric>},
    {"isspace", method_all<is_space>},
    {"isupper", method_is_case<true>},
    {"islower", method_is_case<false>},
    {"istitle", method_istitle},
    {"isascii", method_isascii},
    {"isprintable", method_isprintable},
    {"isidentifier", method_isidentifier},
    {"strip", method_strip<Side::kBoth>},
    {"lstrip", method_strip<Side::kLeft>},
    {"rstrip", method_strip<Side::kRight>},
    {"ljust", method_justify<'<'>},
    {"rjust", method_justify<'>'>},
    {"center", method_justify<'^'>},
    {"zfill", method_zfill},
    {"expandtabs", method_expandtabs},
};

}  // namespace

std::span<const MethodEntry> string_case_methods() {
  return kCaseMethods;
}

}  // namespace quire::jinja
