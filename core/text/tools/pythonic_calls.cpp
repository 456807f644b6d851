#include <algorithm>
#include <cctype>

#include "core/text/jinja/parse/lexer.h"
#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

bool is_name_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

// Writes Python literals as JSON while it reads them.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, std::size_t position, bool spaced, std::string& out)
      : text_(text), position_(position), spaced_(spaced), out_(out) {}

  std::size_t position() const { return position_; }

  // From a value's beginning to its end. Brackets may nest as deeply as the text is long.
  ScanStatus value() {
    do {
      if (!skip_space()) return ScanStatus::kPartial;
      const char c = text_[position_];
      const bool opens = c == '[' || c == '(' || c == '{';
      if (opens) open(c);
      if (const ScanStatus status = opens ? ScanStatus::kComplete : scalar(c); status != ScanStatus::kComplete)
        return status;
      if (const ScanStatus status = go_on(opens); status != ScanStatus::kComplete) return status;
    } while (!open_.empty());
    return ScanStatus::kComplete;
  }

 private:
  bool skip_space() {
    position_ = skip_white_space(text_, position_);
    return position_ < text_.size();
  }

  ScanStatus string(char quote) {
    const std::size_t begin = ++position_;
    while (position_ < text_.size() && text_[position_] != quote)
      position_ += text_[position_] == '\\' ? 2 : 1;
    const bool whole = position_ < text_.size();
    std::size_t end = std::min(position_, text_.size());
    // An escape, up to \UXXXXXXXX, may be cut off: a possible beginning near the end is left for later.
    if (!whole) {
      const std::size_t escape = text_.rfind('\\', end == 0 ? 0 : end - 1);
      if (escape != std::string_view::npos && escape >= begin && end - escape < 10) end = escape;
      while (end > begin && text_[end - 1] == '\\')
        --end;
    }
    out_ += '"';
    append_json_escaped(out_, unescape(text_.substr(begin, end - begin)));
    if (!whole) return ScanStatus::kPartial;
    out_ += '"';
    ++position_;
    return ScanStatus::kComplete;
  }

  static std::string unescape(std::string_view literal) {
    const auto characters = jinja::try_unescape_string(literal);
    return characters ? *characters : std::string(literal);
  }

  ScanStatus number() {
    std::size_t end = position_;
    static constexpr std::string_view kCharacters = "+-._eE0123456789";
    while (end < text_.size() && kCharacters.find(text_[end]) != std::string_view::npos)
      ++end;
    if (end == text_.size()) return ScanStatus::kPartial;
    std::string digits(text_.substr(position_, end - position_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    if (digits.front() == '+') digits.erase(0, 1);
    if (digits.front() == '.') digits.insert(0, 1, '0');
    if (digits.back() == '.') digits += '0';
    drop_leading_zeros(digits);
    const JsonScan scan = scan_json(digits, 0, JsonSpacing::kSpaced);
    if (scan.status != ScanStatus::kComplete || scan.end != digits.size()) return ScanStatus::kMalformed;
    out_ += digits;
    position_ = end;
    return ScanStatus::kComplete;
  }

  // "07" is how models write a month; JSON knows it as 7.
  static void drop_leading_zeros(std::string& digits) {
    const std::size_t first = digits.starts_with('-') ? 1 : 0;
    std::size_t end = first;
    while (end + 1 < digits.size() && digits[end] == '0' && std::isdigit(static_cast<unsigned char>(digits[end + 1])))
      ++end;
    digits.erase(first, end - first);
  }

  ScanStatus word() {
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}, {"true", "true"}, {"false", "false"}, {"null", "null"}};
    std::size_t end = position_;
    while (end < text_.size() && is_name_part(text_[end]))
      ++end;
    const auto written = text_.substr(position_, end - position_);
    for (const auto& [python, json] : kWords) {
      if (end == text_.size() && !written.empty() && python.starts_with(written)) return ScanStatus::kPartial;
      if (written != python) continue;
      out_ += json;
      position_ = end;
      return ScanStatus::kComplete;
    }
    return ScanStatus::kMalformed;
  }

  ScanStatus scalar(char c) {
    if (c == '\'' || c == '"') return string(c);
    if (c == '-' || c == '+' || c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    return word();
  }

  void open(char bracket) {
    ++position_;
    open_ += bracket == '[' ? ']' : bracket == '(' ? ')' : '}';
    out_ += bracket == '{' ? '{' : '[';
  }

  void close() {
    ++position_;
    out_ += open_.back() == '}' ? '}' : ']';
    open_.pop_back();
  }

  // After a bracket (is_first) or a value: closes brackets that end here, and moves to the next value.
  ScanStatus go_on(bool is_first) {
    for (; !open_.empty(); is_first = false) {
      if (!skip_space()) return ScanStatus::kPartial;
      if (text_[position_] == open_.back()) {
        close();
        continue;
      }
      if (!is_first) {
        if (text_[position_] != ',') return ScanStatus::kMalformed;
        ++position_;
        if (!skip_space()) return ScanStatus::kPartial;
        if (text_[position_] == open_.back()) {
          close();
          continue;
        }
        out_ += spaced_ ? ", " : ",";
      }
      return open_.back() == '}' ? key() : ScanStatus::kComplete;
    }
    return ScanStatus::kComplete;
  }

  ScanStatus key() {
    const char c = text_[position_];
    if (c != '\'' && c != '"') return ScanStatus::kMalformed;
    if (const ScanStatus status = string(c); status != ScanStatus::kComplete) return status;
    if (!skip_space()) return ScanStatus::kPartial;
    if (text_[position_] != ':') return ScanStatus::kMalformed;
    ++position_;
    out_ += spaced_ ? ": " : ":";
    return ScanStatus::kComplete;
  }

  std::string_view text_;
  std::size_t position_;
  bool spaced_;
  std::string& out_;
  std::string open_;  // the closing brackets that are still to come, outermost first
};

class PythonicReader {
 public:
  PythonicReader(std::string_view text, const CallContext& context) : text_(text), context_(context) {}

  CallReading run() {
    const auto& format = context_.format;
    skip_marker(format.starts);
    position_ = skip_white_space(text_, position_);
    const bool bracketed = position_ < text_.size() && text_[position_] == '[';
    if (bracketed) ++position_;
    if (!bracketed && format.starts.empty())
      return finish(position_ < text_.size() ? ScanStatus::kMalformed : ScanStatus::kPartial);
    for (;;) {
      skip_separators();
      if (position_ >= text_.size())
        return finish(context_.strict && bracketed ? ScanStatus::kMalformed : ScanStatus::kPartial);
      if (bracketed && text_[position_] == ']') return close();
      if (!bracketed && may_end()) return finish_unbracketed();
      if (const ScanStatus status = call(); status != ScanStatus::kComplete) return finish(status);
      reading_.good_end = position_;
    }
  }

 private:
  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = position_;
    return std::move(reading_);
  }

  void skip_marker(const std::vector<std::string_view>& markers) {
    position_ += match_marker(text_, position_, markers);
  }

  void skip_separators() {
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (reading_.calls.empty() || position_ >= text_.size() || (text_[position_] != ',' && text_[position_] != ';'))
        return;
      ++position_;
    }
  }

  bool may_end() const {
    return match_marker(text_, position_, context_.format.ends) != 0 ||
           may_become_any(text_, position_, context_.format.ends);
  }

  CallReading finish_unbracketed() {
    if (match_marker(text_, position_, context_.format.ends) == 0) return finish(ScanStatus::kPartial);
    skip_marker(context_.format.ends);
    return finish(reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete);
  }

  CallReading close() {
    ++position_;
    const std::size_t next = skip_white_space(text_, position_);
    if (const auto length = match_marker(text_, next, context_.format.ends)) {
      position_ = next + length;
    } else if (!context_.final && !context_.format.ends.empty() &&
               (next >= text_.size() || may_become_any(text_, next, context_.format.ends))) {
      return finish(ScanStatus::kPartial);
    }
    return finish(reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete);
  }

  ScanStatus call() {
    const std::size_t begin = position_;
    while (position_ < text_.size() && is_name_part(text_[position_]))
      ++position_;
    const std::size_t end = position_;
    position_ = skip_white_space(text_, position_);
    if (position_ >= text_.size()) return ScanStatus::kPartial;
    if (end == begin || text_[position_] != '(') return ScanStatus::kMalformed;
    ++position_;
    reading_.calls.push_back({"", std::string(text_.substr(begin, end - begin)), "{"});
    reading_.unfinished = true;
    return keywords(reading_.calls.back().arguments);
  }

  ScanStatus keywords(std::string& out) {
    const bool spaced = context_.spacing == JsonSpacing::kSpaced;
    for (bool first = true;; first = false) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return ScanStatus::kPartial;
      if (text_[position_] == ')') break;
      if (!first) {
        if (text_[position_] != ',') return ScanStatus::kMalformed;
        position_ = skip_white_space(text_, position_ + 1);
        if (position_ >= text_.size()) return ScanStatus::kPartial;
        if (text_[position_] == ')') break;
      }
      if (const ScanStatus status = keyword(out, first, spaced); status != ScanStatus::kComplete) return status;
    }
    ++position_;
    out += '}';
    reading_.unfinished = false;
    return ScanStatus::kComplete;
  }

  ScanStatus keyword(std::string& out, bool first, bool spaced) {
    const std::size_t begin = position_;
    while (position_ < text_.size() && is_name_part(text_[position_]))
      ++position_;
    const auto key = text_.substr(begin, position_ - begin);
    position_ = skip_white_space(text_, position_);
    if (position_ >= text_.size()) return ScanStatus::kPartial;
    if (key.empty() || text_[position_] != '=') return ScanStatus::kMalformed;
    if (!first) out += spaced ? ", " : ",";
    out += quote_json(key) + (spaced ? ": " : ":");
    LiteralReader literal(text_, position_ + 1, spaced, out);
    const ScanStatus status = literal.value();
    position_ = std::min(literal.position(), text_.size());
    return status;
  }

  std::string_view text_;
  const CallContext& context_;
  CallReading reading_;
  std::size_t position_ = 0;
};

}  // namespace

CallReading read_pythonic_calls(std::string_view text, const CallContext& context) {
  return PythonicReader(text, context).run();
}

std::optional<std::string> python_literal_to_json(std::string_view text, JsonSpacing spacing) {
  std::string out;
  // A number is whole only once something follows it.
  const std::string terminated = std::string(text) + "\n";
  LiteralReader literal(terminated, 0, spacing == JsonSpacing::kSpaced, out);
  const bool whole =
      literal.value() == ScanStatus::kComplete && skip_white_space(terminated, literal.position()) == terminated.size();
  return whole ? std::optional(out) : std::nullopt;
}

}  // namespace quire
