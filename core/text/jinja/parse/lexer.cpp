#include "core/text/jinja/parse/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

constexpr auto kNotFound = std::string::npos;

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

// Jinja2 works on "\n" line ends and drops one at the very end.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const LexerOptions& options)
      : source_(normalize_newlines(source)), options_(options) {}

  std::vector<Token> run() {
    while (position_ < source_.size())
      lex_root();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance_to(std::size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    line_starting_ = position > position_ && source_[position - 1] == '\n';
    position_ = position;
  }

  std::size_t skip_space(std::size_t position) const {
    while (position < source_.size()) {
      std::size_t next = position;
      if (!is_space(next_code_point(source_, next))) break;
      position = next;
    }
    return position;
  }

  bool at(std::size_t position, std::string_view text) const {
    return source_.compare(position, text.size(), text) == 0;
  }

  // The tag's opening at or after `position`: "{{", "{%" or "{#".
  std::size_t find_tag(std::size_t position) const {
    for (;; ++position) {
      position = source_.find('{', position);
      if (position == kNotFound || position + 1 >= source_.size()) return kNotFound;
      const char next = source_[position + 1];
      if (next == '{' || next == '%' || next == '#') return position;
    }
  }

  char sign_at(std::size_t position) const {
    if (position < source_.size() && (source_[position] == '-' || source_[position] == '+')) return source_[position];
    return '\0';
  }

  // The text before a tag whose opening carries `sign`.
  std::string text_before(std::size_t end, char sign, bool variable) const {
    std::string text = source_.substr(position_, end - position_);
    if (sign == '-') {
      const auto offsets = code_point_offsets(text);
      std::size_t kept = offsets.size() - 1;
      while (kept > 0) {
        std::size_t begin = offsets[kept - 1];
        if (!is_space(next_code_point(text, begin))) break;
        --kept;
      }
      text.resize(offsets[kept]);
    } else if (sign != '+' && options_.lstrip_blocks && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == kNotFound ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && all_space(std::string_view(text).substr(line_begin)))
        text.resize(line_begin);
    }
    return text;
  }

  static bool all_space(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      if (!is_space(next_code_point(text, i))) return false;
    }
    return true;
  }

  void push_data(std::string text) {
    if (!text.empty()) push(TokenKind::kData, std::move(text));
  }

  void lex_root() {
    const std::size_t tag = find_tag(position_);
    if (tag == kNotFound) {
      push_data(source_.substr(position_));
      advance_to(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    push_data(text_before(tag, sign, kind == '{'));
    const std::size_t content = tag + (sign == '\0' ? 2 : 3);
    if (kind == '#') {
      advance_to(content);
      skip_comment();
      return;
    }
    std::size_t raw_begin = 0;
    if (kind == '%' && match_raw_begin(content, raw_begin)) {
      advance_to(raw_begin);
      lex_raw();
      return;
    }
    advance_to(content);
    push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    lex_tag(kind == '%');
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", position_);
    if (end == kNotFound) fail("Missing end of comment tag", line_);
    const char sign = end > position_ ? sign_before(end) : '\0';
    advance_to(after_block_end(end + 2, sign));
  }

  char sign_before(std::size_t position) const {
    const char c = source_[position - 1];
    return c == '-' || c == '+' ? c : '\0';
  }

  // Position after the closing of a block or comment, whitespace control applied.
  std::size_t after_block_end(std::size_t position, char sign) const {
    if (sign == '-') return skip_space(position);
    if (sign == '\0' && options_.trim_blocks && position < source_.size() && source_[position] == '\n')
      return position + 1;
    return position;
  }

  bool match_raw_begin(std::size_t position, std::size_t& after) const {
    position = skip_space(position);
    if (!at(position, "raw")) return false;
    position = skip_space(position + 3);
    if (at(position, "-%}")) {
      after = skip_space(position + 3);
      return true;
    }
    after = position + 2;
    return at(position, "%}");
  }

  void lex_raw() {
    for (std::size_t tag = source_.find("{%", position_); tag != kNotFound; tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t position = skip_space(tag + (sign == '\0' ? 2 : 3));
      if (!at(position, "endraw")) continue;
      position = skip_space(position + 6);
      const char end_sign = sign_at(position);
      if (end_sign != '\0') ++position;
      if (!at(position, "%}")) continue;
      push_data(text_before(tag, sign, false));
      advance_to(after_block_end(position + 2, end_sign));
      return;
    }
    fail("Missing end of raw directive", line_);
  }

  // Consumes the tag's closing if it is here.
  bool match_end(bool block) {
    const std::string_view closing = block ? "%}" : "}}";
    const char sign = sign_at(position_);
    const bool signed_end = (sign == '-' || (sign == '+' && block)) && at(position_ + 1, closing);
    if (!signed_end && !at(position_, closing)) return false;
    push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    std::size_t after = position_ + (signed_end ? 3 : 2);
    if (block) {
      after = after_block_end(after, signed_end ? sign : '\0');
    } else if (signed_end) {
      after = skip_space(after);
    }
    advance_to(after);
    return true;
  }

  void lex_tag(bool block) {
    std::string brackets;  // closing brackets still expected
    for (;;) {
      if (brackets.empty() && match_end(block)) return;
      const std::size_t token = skip_space(position_);
      if (token != position_) {
        advance_to(token);
        continue;
      }
      if (position_ >= source_.size()) fail("unexpected end of template, a tag is not closed", line_);
      lex_token(brackets);
    }
  }

  void lex_token(std::string& brackets) {
    const char c = source_[position_];
    if (is_ascii_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string(c);
    std::size_t next = position_;
    if (is_word(next_code_point(source_, next))) return lex_name();
    lex_operator(brackets);
  }

  std::size_t skip_digits(std::size_t position) const {
    while (position < source_.size() &&
           (is_ascii_digit(source_[position]) ||
            (source_[position] == '_' && position + 1 < source_.size() && is_ascii_digit(source_[position + 1])))) {
      ++position;
    }
    return position;
  }

  std::size_t skip_exponent(std::size_t position) const {
    if (position >= source_.size() || (source_[position] | 0x20) != 'e') return position;
    std::size_t digits = position + 1;
    if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
    return digits < source_.size() && is_ascii_digit(source_[digits]) ? skip_digits(digits) : position;
  }

  void push_number(TokenKind kind, std::size_t end) {
    std::string text = source_.substr(position_, end - position_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    push(kind, std::move(text));
    advance_to(end);
  }

  void lex_number() {
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    std::size_t end = skip_digits(position_);
    if (!after_dot) {
      std::size_t float_end = end;
      if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1]))
        float_end = skip_digits(end + 1);
      float_end = skip_exponent(float_end);
      if (float_end != end) return push_number(TokenKind::kFloat, float_end);
    }
    if (source_[position_] == '0') end = leading_zero_end(end);
    push_number(TokenKind::kInteger, end);
  }

  // After a leading zero come a base letter with its digits, or zeros only.
  std::size_t leading_zero_end(std::size_t end) const {
    const char base = position_ + 1 < source_.size() ? static_cast<char>(source_[position_ + 1] | 0x20) : '\0';
    if (base == 'x' || base == 'o' || base == 'b') {
      std::size_t position = position_ + 2;
      const auto is_digit_of_base = [base](char c) {
        if (base == 'x') return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        return c >= '0' && c <= (base == 'o' ? '7' : '1');
      };
      while (position < source_.size() && (is_digit_of_base(source_[position]) || source_[position] == '_'))
        ++position;
      if (position > position_ + 2) return position;
    }
    std::size_t zeros = position_;
    while (zeros < end && (source_[zeros] == '0' || source_[zeros] == '_'))
      ++zeros;
    return zeros;
  }

  void lex_string(char quote) {
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote)
      end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed", line_);
    push(TokenKind::kString,
         unescape_string(std::string_view(source_).substr(position_ + 1, end - position_ - 1), line_));
    advance_to(end + 1);
  }

  void lex_name() {
    std::size_t end = position_;
    for (std::size_t next = end; next < source_.size() && is_word(next_code_point(source_, next));)
      end = next;
    push(TokenKind::kName, source_.substr(position_, end - position_));
    advance_to(end);
  }

  void lex_operator(std::string& brackets) {
    static constexpr std::array<std::string_view, 6> kLong{"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string text;
    for (const auto candidate : kLong) {
      if (at(position_, candidate)) text = candidate;
    }
    if (text.empty() && kShort.find(source_[position_]) != kNotFound) text = source_[position_];
    if (text.empty()) fail("unexpected char '" + source_.substr(position_, 1) + "'", line_);
    track_bracket(text[0], brackets);
    push(TokenKind::kOperator, text);
    advance_to(position_ + text.size());
  }

  void track_bracket(char c, std::string& brackets) const {
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty()) fail(std::string("unexpected '") + c + "'", line_);
    if (brackets.back() != c) fail(std::string("unexpected '") + c + "', expected '" + brackets.back() + "'", line_);
    brackets.pop_back();
  }

  std::string source_;
  LexerOptions options_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const LexerOptions& options) {
  return Lexer(source, options).run();
}

}  // namespace quire::jinja
