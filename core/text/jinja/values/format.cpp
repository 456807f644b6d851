// Python's two ways to format: `format % arguments` and str.format.
#include <algorithm>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Evaluator& evaluator, const Text& format, const Value& arguments)
      : evaluator_(evaluator), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  Text run() {
    while (position_ < bytes_.size()) {
      const std::size_t percent = std::min(bytes_.find('%', position_), bytes_.size());
      out_.append(format_, position_, percent - position_);
      position_ = percent + 1;
      if (percent < bytes_.size()) format_one();
      evaluator_.check_length(out_.size());
    }
    // Python lets a mapping, which a list or range counts as here, go unused.
    const bool mapping = arguments_.is_dict() || arguments_.is_list() || arguments_.is_range();
    const bool unused = arguments_.is_tuple() ? num_used_ < arguments_.items().size() : num_used_ == 0 && !mapping;
    if (unused) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char current() const { return position_ < bytes_.size() ? bytes_[position_] : '\0'; }

  Value next_argument() {
    if (arguments_.is_tuple()) {
      if (num_used_ >= arguments_.items().size()) fail("not enough arguments for format string");
      return arguments_.items()[num_used_++];
    }
    if (num_used_++ != 0) fail("not enough arguments for format string");
    return arguments_;
  }

  std::optional<Value> named_argument() {
    if (current() != '(') return std::nullopt;
    const std::size_t end = bytes_.find(')', position_);
    if (end == std::string::npos) fail("incomplete format key");
    if (!arguments_.is_dict()) fail("format requires a mapping");
    const std::string key = bytes_.substr(position_ + 1, end - position_ - 1);
    const Value* found = arguments_.dict().find(key);
    if (found == nullptr) fail("KeyError: '" + key + "'");
    position_ = end + 1;
    return *found;
  }

  std::size_t count() {
    if (current() == '*') {
      ++position_;
      const Value value = next_argument();
      if (!value.is_integral() || value.as_integer() < 0 || value.as_integer() > 1 << 20) fail("* wants a small int");
      return static_cast<std::size_t>(value.as_integer());
    }
    std::size_t value = 0;
    for (; current() >= '0' && current() <= '9'; ++position_) {
      value = value * 10 + static_cast<std::size_t>(current() - '0');
      if (value > 1 << 20) fail("the width in a format string is too large");
    }
    return value;
  }

  FormatSpec read_spec() {
    FormatSpec spec;
    for (; std::string_view("#0- +").find(current()) != std::string_view::npos && current() != '\0'; ++position_) {
      if (current() == '#') spec.alternate = true;
      if (current() == '-') spec.align = '<';
      if (current() == '+' || (current() == ' ' && spec.sign == '-')) spec.sign = current();
      if (current() == '0') spec.fill = "0";
    }
    spec.width = count();
    if (current() == '.') {
      ++position_;
      spec.precision = count();
    }
    while (current() == 'l' || current() == 'h' || current() == 'L')
      ++position_;
    spec.type = current();
    ++position_;
    return spec;
  }

  void format_one() {
    const auto named = named_argument();
    FormatSpec spec = read_spec();
    if (spec.type == '%') return out_.append("%", true);
    if (spec.type == '\0') fail("incomplete format");
    const Value value = named ? *named : next_argument();
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a' || (spec.type == 'c' && value.is_string())) {
      spec.fill = " ";
      Text text = spec.type == 's' || spec.type == 'c' ? to_text(evaluator_, value) : repr(evaluator_, value);
      if (spec.precision) {
        const auto offsets = code_point_offsets(text.bytes());
        if (*spec.precision < offsets.size() - 1) text = text.part(0, offsets[*spec.precision]);
      }
      return out_.append(pad(text, spec, '>'));
    }
    format_numeric(value, spec);
  }

  void format_numeric(const Value& value, FormatSpec spec) {
    if (!value.is_number())
      fail(std::string("%") + spec.type + " format: a number is required, not " + type_name(value));
    if (spec.fill == "0") spec.align = spec.align == '<' ? '<' : '=';
    if (spec.align == '<') spec.fill = " ";
    Value number = value;
    const bool integral = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (integral && value.is_float()) number = Value::integer(static_cast<std::int64_t>(value.as_double()));
    if (integral) spec.type = 'd';
    if (std::string_view("dxXoceEfFgG").find(spec.type) == std::string_view::npos) {
      fail(std::string("unsupported format character '") + spec.type + "'");
    }
    const auto digits = spec.precision;
    if (!number.is_float() && (spec.type == 'd' || spec.type == 'x' || spec.type == 'X' || spec.type == 'o'))
      spec.precision.reset();
    std::string text = format_number(number, spec);
    if (digits && !spec.precision && text.size() < *digits)
      text.insert(text[0] == '-' ? 1 : 0, *digits - text.size() + (text[0] == '-' ? 1 : 0), '0');
    out_.append(text, true);
  }

  Evaluator& evaluator_;
  const Text& format_;
  const std::string& bytes_;
  const Value& arguments_;
  Text out_;
  std::size_t position_ = 0;
  std::size_t num_used_ = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(Evaluator& evaluator, const Text& format, const Arguments& arguments)
      : evaluator_(evaluator), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  Text run() {
    while (position_ < bytes_.size()) {
      const char c = bytes_[position_];
      if (c != '{' && c != '}') {
        out_.append(format_, position_++, 1);
      } else if (position_ + 1 < bytes_.size() && bytes_[position_ + 1] == c) {
        out_.append(format_, position_, 1);
        position_ += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        ++position_;
        out_.append(replacement(0));
      }
      evaluator_.check_length(out_.size());
    }
    return std::move(out_);
  }

 private:
  std::string read_until(std::string_view stops) {
    const std::size_t end = bytes_.find_first_of(stops, position_);
    if (end == std::string::npos) fail("expected '}' before end of string");
    std::string text = bytes_.substr(position_, end - position_);
    position_ = end;
    return text;
  }

  Value positional(std::size_t index) {
    if (index >= arguments_.positional.size())
      fail("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
    return arguments_.positional[index];
  }

  Value field(const std::string& name) {
    if (name.empty()) return positional(num_automatic_++);
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return positional(static_cast<std::size_t>(parse_integer(name, 10).value_or(1 << 20)));
    }
    for (const auto& [keyword, value] : arguments_.keywords) {
      if (keyword == name) return value;
    }
    fail("KeyError: '" + name + "'");
  }

  // {name.attribute[key]!conversion:specification}, the brace already read.
  Text replacement(int depth) {
    if (depth > 1) fail("Max string recursion exceeded");
    Value value = field(read_until(".[!:}"));
    while (bytes_[position_] == '.' || bytes_[position_] == '[') {
      const bool attribute = bytes_[position_++] == '.';
      const std::string key = read_until(attribute ? ".[!:}" : "]");
      if (!attribute) ++position_;
      const auto number = parse_integer(key, 10);
      value = attribute ? evaluator_.attribute(value, key)
                        : evaluator_.item(value, number ? Value::integer(*number) : Value::string(key));
      if (position_ >= bytes_.size()) fail("expected '}' before end of string");
    }
    char conversion = '\0';
    if (bytes_[position_] == '!') {
      if (position_ + 2 >= bytes_.size()) fail("unmatched '{' in format spec");
      conversion = bytes_[position_ + 1];
      position_ += 2;
    }
    std::string spec;
    if (bytes_[position_] == ':') {
      ++position_;
      spec = specification(depth);
    }
    if (bytes_[position_] != '}') fail("expected '}' in format string");
    ++position_;
    if (conversion == 'r' || conversion == 'a') value = Value::string(repr(evaluator_, value));
    if (conversion == 's') value = Value::string(to_text(evaluator_, value));
    return formatted(value, spec);
  }

  std::string specification(int depth) {
    std::string spec;
    for (;;) {
      spec += read_until("{}");
      if (bytes_[position_] == '}') return spec;
      ++position_;
      spec += replacement(depth + 1).bytes();
    }
  }

  Text formatted(const Value& value, const std::string& text) {
    if (text.empty()) return to_text(evaluator_, value);
    const FormatSpec spec = parse_format_spec(text);
    if (value.is_number() && !(value.is_bool() && spec.type == 's')) return Text(format_number(value, spec), true);
    if (!value.is_string()) fail("unsupported format string passed to " + type_name(value) + ".__format__");
    if (spec.type != '\0' && spec.type != 's')
      fail(std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
    Text shown = value.text();
    const auto offsets = code_point_offsets(shown.bytes());
    if (spec.precision && *spec.precision < offsets.size() - 1) shown = shown.part(0, offsets[*spec.precision]);
    return pad(shown, spec, '<');
  }

  Evaluator& evaluator_;
  const Text& format_;
  const std::string& bytes_;
  const Arguments& arguments_;
  Text out_;
  std::size_t position_ = 0;
  std::size_t num_automatic_ = 0;
};

}  // namespace

Value percent_format(Evaluator& evaluator, const Value& format, const Value& arguments) {
  return Value::string(PercentFormatter(evaluator, format.text(), arguments).run(), format.is_markup());
}

Value brace_format(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  return Value::string(BraceFormatter(evaluator, self.text(), arguments).run(), self.is_markup());
}

Text escape_html(const Text& text) {
  Text out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text.bytes()[i]) {
      case '&': out.append("&amp;", text.trusted_at(i)); break;
      case '<': out.append("&lt;", text.trusted_at(i)); break;
      case '>': out.append("&gt;", text.trusted_at(i)); break;
      case '\'': out.append("&#39;", text.trusted_at(i)); break;
      case '"': out.append("&#34;", text.trusted_at(i)); break;
      default: out.append(text, i, 1);
    }
  }
  return out;
}

}  // namespace quire::jinja
