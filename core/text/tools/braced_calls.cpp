// Gemma's calls: call:name{key:value, ...}, strings between quotes of their own.
#include <algorithm>

#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

constexpr int kMaxBracedNesting = 100;

class BracedReader {
 public:
  BracedReader(std::string_view text, const CallContext& context)
      : text_(text), context_(context), format_(context.format), spaced_(context.spacing == JsonSpacing::kSpaced) {}

  CallReading run() {
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return finish(ScanStatus::kPartial);
      if (!context_.final && may_become_any(text_, position_, format_.starts)) return finish(ScanStatus::kPartial);
      if (const auto length = match_marker(text_, position_, format_.starts)) {
        position_ += length;
        reading_.closed = false;
        if (const ScanStatus status = call(); status != ScanStatus::kComplete) return finish(status);
        reading_.good_end = position_;
      } else if (const auto end_length = match_end(text_, position_, context_)) {
        position_ += end_length;
        reading_.good_end = position_;
        reading_.closed = true;
      } else {
        return finish(no_call_here());
      }
    }
  }

 private:
  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = std::min(position_, text_.size());
    return std::move(reading_);
  }

  ScanStatus no_call_here() const {
    if (!context_.final &&
        (may_become_any(text_, position_, format_.starts) || may_become_any(text_, position_, format_.ends))) {
      return ScanStatus::kPartial;
    }
    return reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete;
  }

  ScanStatus call() {
    position_ = skip_white_space(text_, position_);
    if (!text_.substr(position_).starts_with(format_.name_begin)) {
      return may_become(text_, position_, format_.name_begin) ? ScanStatus::kPartial : ScanStatus::kMalformed;
    }
    position_ += format_.name_begin.size();
    const std::size_t brace = text_.find('{', position_);
    if (brace == kNowhere) return ScanStatus::kPartial;
    const auto name = text_.substr(position_, brace - position_);
    if (name.empty() || name.find_first_of(" \n<>") != kNowhere) return ScanStatus::kMalformed;
    tool_ = find_tool(context_.tools, name);
    position_ = brace;
    reading_.calls.push_back({"", std::string(name), ""});
    reading_.unfinished = true;
    std::string& out = reading_.calls.back().arguments;
    const ScanStatus status = object(out, 0);
    reading_.unfinished = status != ScanStatus::kComplete;
    if (status == ScanStatus::kPartial && context_.final && context_.strict && format_.mends_cut_off) out += closing_;
    return status;
  }

  bool skip_space() {
    position_ = skip_white_space(text_, position_);
    return position_ < text_.size();
  }

  // Reads members or items up to `closing`.
  template <class Item>
  ScanStatus items(char closing, const Item& item) {
    ++position_;
    for (bool first = true;; first = false) {
      if (!skip_space()) return ScanStatus::kPartial;
      if (text_[position_] == closing) {
        ++position_;
        return ScanStatus::kComplete;
      }
      if (!first) {
        if (text_[position_] != ',') return ScanStatus::kMalformed;
        ++position_;
        if (!skip_space()) return ScanStatus::kPartial;
      }
      if (const ScanStatus status = item(first); status != ScanStatus::kComplete) return status;
    }
  }

  ScanStatus object(std::string& out, int depth) {
    if (depth > kMaxBracedNesting) return ScanStatus::kMalformed;
    out += '{';
    closing_.insert(closing_.begin(), '}');
    const ScanStatus status = items('}', [&](bool first) {
      std::string key;
      if (const ScanStatus read = read_key(key); read != ScanStatus::kComplete) return read;
      if (!first) out += spaced_ ? ", " : ",";
      out += quote_json(key) + (spaced_ ? ": " : ":");
      return value(out, depth + 1, depth == 0 ? find_parameter(tool_, key) : nullptr);
    });
    if (status == ScanStatus::kComplete) {
      out += '}';
      closing_.erase(0, 1);
    }
    return status;
  }

  ScanStatus read_key(std::string& key) {
    if (text_.substr(position_).starts_with(format_.string_quote)) {
      const std::size_t begin = position_ + format_.string_quote.size();
      const std::size_t end = text_.find(format_.string_quote, begin);
      if (end == kNowhere) return ScanStatus::kPartial;
      key = std::string(text_.substr(begin, end - begin));
      position_ = end + format_.string_quote.size();
      if (!skip_space()) return ScanStatus::kPartial;
      if (text_[position_] != ':') return ScanStatus::kMalformed;
      ++position_;
      return ScanStatus::kComplete;
    }
    const std::size_t colon = text_.find(':', position_);
    if (colon == kNowhere) return ScanStatus::kPartial;
    key = std::string(text_.substr(position_, colon - position_));
    position_ = colon + 1;
    return ScanStatus::kComplete;
  }

  ScanStatus value(std::string& out, int depth, const ToolParameter* parameter) {
    if (!skip_space()) return ScanStatus::kPartial;
    const char c = text_[position_];
    if (text_.substr(position_).starts_with(format_.string_quote)) return string(out);
    if (may_become(text_, position_, format_.string_quote) && !context_.final) return ScanStatus::kPartial;
    if (c == '{') return object(out, depth);
    if (c == '[') return list(out, depth);
    const std::size_t end = text_.find_first_of(",}]", position_);
    if (end == kNowhere) return ScanStatus::kPartial;
    const std::string word(text_.substr(position_, end - position_));
    position_ = end;
    const JsonScan scan = scan_json(word, 0, context_.spacing);
    const bool is_text =
        parameter != nullptr && !parameter->types.empty() && parameter->types == std::vector<std::string>{"string"};
    out += scan.status == ScanStatus::kComplete && !is_text ? scan.text : quote_json(word);
    return ScanStatus::kComplete;
  }

  ScanStatus list(std::string& out, int depth) {
    if (depth > kMaxBracedNesting) return ScanStatus::kMalformed;
    out += '[';
    closing_.insert(closing_.begin(), ']');
    const ScanStatus status = items(']', [&](bool first) {
      if (!first) out += spaced_ ? ", " : ",";
      return value(out, depth + 1, nullptr);
    });
    if (status == ScanStatus::kComplete) {
      out += ']';
      closing_.erase(0, 1);
    }
    return status;
  }

  ScanStatus string(std::string& out) {
    const std::size_t begin = position_ + format_.string_quote.size();
    const std::size_t end = text_.find(format_.string_quote, begin);
    auto written = text_.substr(begin, std::min(end, text_.size()) - begin);
    if (end == kNowhere && !context_.final) written.remove_suffix(held_back(written, {format_.string_quote}));
    out += '"';
    append_json_escaped(out, written);
    if (end == kNowhere) {
      closing_.insert(closing_.begin(), '"');
      return ScanStatus::kPartial;
    }
    out += '"';
    position_ = end + format_.string_quote.size();
    return ScanStatus::kComplete;
  }

  std::string_view text_;
  const CallContext& context_;
  const ToolFormat& format_;
  bool spaced_;
  const ToolSpec* tool_ = nullptr;
  CallReading reading_;
  std::size_t position_ = 0;
  std::string closing_;  // closes a cut-off call's arguments
};

}  // namespace

CallReading read_braced_calls(std::string_view text, const CallContext& context) {
  return BracedReader(text, context).run();
}

}  // namespace quire
