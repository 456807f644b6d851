#include "core/text/tools/json_scan.h"

#include <array>
#include <cctype>

#include "core/base/json/json.h"

namespace quire {
namespace {

constexpr std::size_t kMaxJsonNesting = 200;

bool is_white_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

// A number of JSON (RFC 8259, section 6), of any size: 1e999 too, which nlohmann's parser refuses as out of range.
bool is_number(std::string_view text) {
  const auto take_digits = [&] {
    const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  const auto take_any = [&](std::string_view characters) {
    const bool found = !text.empty() && characters.find(text.front()) != std::string_view::npos;
    if (found) text.remove_prefix(1);
    return found;
  };
  take_any("-");
  const bool begins_with_zero = text.starts_with('0');
  const std::size_t num_digits = take_digits();
  if (num_digits == 0 || (begins_with_zero && num_digits > 1)) return false;
  if (take_any(".") && take_digits() == 0) return false;
  if (take_any("eE")) {
    take_any("+-");
    if (take_digits() == 0) return false;
  }
  return text.empty();
}

// Scans one value; `expect_` and a stack of open brackets hold the state.
class Scanner {
 public:
  Scanner(std::string_view text, std::size_t position, JsonSpacing spacing)
      : text_(text), position_(position), spaced_(spacing == JsonSpacing::kSpaced) {}

  JsonScan run() {
    JsonScan scan;
    scan.status = ScanStatus::kPartial;
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) break;
      const ScanStatus step = next_token();
      if (step == ScanStatus::kMalformed) {
        scan.status = step;
        break;
      }
      if (step == ScanStatus::kPartial) break;
      if (open_.empty() && expect_ == Expect::kSeparator) {
        scan.status = ScanStatus::kComplete;
        break;
      }
    }
    scan.end = position_;
    scan.text = std::move(out_);
    return scan;
  }

 private:
  enum class Expect { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kSeparator };

  ScanStatus next_token() {
    const char c = text_[position_];
    switch (expect_) {
      case Expect::kKeyOrEnd:
        if (c == '}') return close(c);
        [[fallthrough]];
      case Expect::kKey:
        if (c != '"') return ScanStatus::kMalformed;
        return string(Expect::kColon);
      case Expect::kColon:
        if (c != ':') return ScanStatus::kMalformed;
        return punctuation(spaced_ ? ": " : ":", Expect::kValue);
      case Expect::kSeparator:
        if (c == ',') return punctuation(spaced_ ? ", " : ",", open_.back() == '}' ? Expect::kKey : Expect::kValue);
        return close(c);
      case Expect::kValueOrEnd:
        if (c == ']') return close(c);
        [[fallthrough]];
      case Expect::kValue: return value(c);
    }
    return ScanStatus::kMalformed;
  }

  ScanStatus punctuation(std::string_view text, Expect next) {
    out_ += text;
    ++position_;
    expect_ = next;
    return ScanStatus::kComplete;
  }

  ScanStatus close(char c) {
    if (open_.empty() || open_.back() != c) return ScanStatus::kMalformed;
    open_.pop_back();
    return punctuation({&c, 1}, Expect::kSeparator);
  }

  ScanStatus value(char c) {
    if (c == '{' || c == '[') {
      if (open_.size() >= kMaxJsonNesting) return ScanStatus::kMalformed;
      open_ += c == '{' ? '}' : ']';
      return punctuation({&c, 1}, c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd);
    }
    if (c == '"') return string(Expect::kSeparator);
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    return literal();
  }

  ScanStatus string(Expect next) {
    out_ += '"';
    ++position_;
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == '"') {
        out_ += c;
        ++position_;
        expect_ = next;
        return ScanStatus::kComplete;
      }
      if (c == '\\') {
        const ScanStatus status = escape();
        if (status != ScanStatus::kComplete) return status;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        append_json_escaped(out_, {&c, 1});
        ++position_;
      } else {
        out_ += c;
        ++position_;
      }
    }
    return ScanStatus::kPartial;
  }

  // An escape is taken whole, so that a partial text never ends inside one.
  ScanStatus escape() {
    if (position_ + 1 >= text_.size()) return ScanStatus::kPartial;
    const char kind = text_[position_ + 1];
    const std::size_t length = kind == 'u' ? 6 : 2;
    static constexpr std::string_view kKinds = "\"\\/bfnrtu";
    if (kKinds.find(kind) == std::string_view::npos) return ScanStatus::kMalformed;
    for (std::size_t i = 2; i < length; ++i) {
      if (position_ + i >= text_.size()) return ScanStatus::kPartial;
      if (!is_hex(text_[position_ + i])) return ScanStatus::kMalformed;
    }
    out_ += text_.substr(position_, length);
    position_ += length;
    return ScanStatus::kComplete;
  }

  ScanStatus number() {
    std::size_t end = position_;
    static constexpr std::string_view kCharacters = "+-.eE0123456789";
    while (end < text_.size() && kCharacters.find(text_[end]) != std::string_view::npos)
      ++end;
    const std::string_view digits = text_.substr(position_, end - position_);
    const bool at_text_end = end == text_.size();
    if (!is_number(digits)) return at_text_end && digits.size() < 400 ? ScanStatus::kPartial : ScanStatus::kMalformed;
    if (at_text_end && !open_.empty()) return ScanStatus::kPartial;  // more digits may follow
    return take(digits);
  }

  ScanStatus literal() {
    static constexpr std::array<std::string_view, 3> kLiterals{"true", "false", "null"};
    for (const auto literal : kLiterals) {
      const auto written = text_.substr(position_, literal.size());
      if (written == literal) return take(literal);
      if (position_ + written.size() == text_.size() && literal.starts_with(written)) return ScanStatus::kPartial;
    }
    return ScanStatus::kMalformed;
  }

  ScanStatus take(std::string_view token) {
    out_ += token;
    position_ += token.size();
    expect_ = Expect::kSeparator;
    return ScanStatus::kComplete;
  }

  std::string_view text_;
  std::size_t position_;
  bool spaced_;
  std::string out_;
  std::string open_;  // the closing brackets still due
  Expect expect_ = Expect::kValue;
};

}  // namespace

std::size_t skip_white_space(std::string_view text, std::size_t position) {
  while (position < text.size() && is_white_space(text[position]))
    ++position;
  return position;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty() && skip_white_space(text, text.size() - 1) == text.size())
    text.remove_suffix(1);
  return text;
}

std::string_view trim(std::string_view text) {
  return trim_end(text.substr(skip_white_space(text, 0)));
}

JsonScan scan_json(std::string_view text, std::size_t position, JsonSpacing spacing) {
  return Scanner(text, position, spacing).run();
}

JsonMembers scan_members(std::string_view text, std::size_t position, JsonSpacing spacing) {
  JsonMembers result;
  const auto stop = [&result](ScanStatus status, std::size_t end) {
    result.status = status;
    result.end = end;
    return std::move(result);
  };
  position = skip_white_space(text, position);
  if (position >= text.size()) return stop(ScanStatus::kPartial, position);
  if (text[position] != '{') return stop(ScanStatus::kMalformed, position);
  ++position;
  for (;;) {
    position = skip_white_space(text, position);
    if (position >= text.size()) return stop(ScanStatus::kPartial, position);
    if (text[position] == '}' && result.members.empty()) return stop(ScanStatus::kComplete, position + 1);
    if (text[position] != '"') return stop(ScanStatus::kMalformed, position);
    const JsonScan key = scan_json(text, position, spacing);
    if (key.status != ScanStatus::kComplete) return stop(key.status, key.end);
    position = skip_white_space(text, key.end);
    if (position >= text.size()) return stop(ScanStatus::kPartial, position);
    if (text[position] != ':') return stop(ScanStatus::kMalformed, position);
    const std::size_t begin = skip_white_space(text, position + 1);
    JsonMember member{decode_json_string(key.text).value_or(""), begin, scan_json(text, begin, spacing)};
    const ScanStatus status = member.value.status;
    position = skip_white_space(text, member.value.end);
    result.members.push_back(std::move(member));
    if (status != ScanStatus::kComplete || position >= text.size()) {
      return stop(status == ScanStatus::kComplete ? ScanStatus::kPartial : status, position);
    }
    if (text[position] == '}') return stop(ScanStatus::kComplete, position + 1);
    if (text[position] != ',') return stop(ScanStatus::kMalformed, position);
    ++position;
  }
}

std::optional<std::string> decode_json_string(std::string_view json) {
  const auto value = SortedJson::parse(json, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace quire
