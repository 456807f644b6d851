// Calls whose arguments are tags in tags, with a mark before each: members under their names, items of lists as <item>.
#include <algorithm>

#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

constexpr int kMaxTagNesting = 100;

class NestedTagReader {
 public:
  NestedTagReader(std::string_view text, const CallContext& context)
      : text_(text), context_(context), format_(context.format), spaced_(context.spacing == JsonSpacing::kSpaced) {}

  CallReading run() {
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return finish(ScanStatus::kPartial);
      const bool open = may_become(text_, position_, format_.name_begin) ||
                        may_become_any(text_, position_, format_.starts) ||
                        may_become_any(text_, position_, format_.ends);
      if (open && !context_.final) return finish(ScanStatus::kPartial);
      if (take(format_.name_begin)) {
        reading_.closed = false;
        if (const ScanStatus status = call(); status != ScanStatus::kComplete) return finish(status);
        reading_.good_end = position_;
      } else if (const auto length = match_marker(text_, position_, format_.starts)) {
        position_ += length;
      } else if (const auto end_length = match_marker(text_, position_, format_.ends)) {
        position_ += end_length;
        reading_.good_end = position_;
        reading_.closed = true;
      } else {
        return finish(reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete);
      }
    }
  }

 private:
  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = std::min(position_, text_.size());
    return std::move(reading_);
  }

  bool take(std::string_view marker) {
    if (!text_.substr(position_).starts_with(marker)) return false;
    position_ += marker.size();
    return true;
  }

  ScanStatus call() {
    const std::size_t end = text_.find(format_.name_end, position_);
    if (end == kNowhere) return ScanStatus::kPartial;
    const std::string name(trim(text_.substr(position_, end - position_)));
    if (name.empty()) return ScanStatus::kMalformed;
    position_ = end + format_.name_end.size();
    const ToolSpec* tool = find_tool(context_.tools, name);
    static const std::vector<ToolParameter> kNone;
    reading_.calls.push_back({"", name, "{"});
    reading_.unfinished = true;
    std::string& out = reading_.calls.back().arguments;
    const ScanStatus status = members(out, tool == nullptr ? kNone : tool->parameters, format_.call_end, 0);
    reading_.unfinished = status != ScanStatus::kComplete;
    return status;
  }

  // Up to `end`, a tag with its mark, or, where that is empty, to the mark of a tag that closes.
  ScanStatus members(std::string& out, const std::vector<ToolParameter>& known, std::string_view end, int depth) {
    for (bool first = true;; first = false) {
      position_ = skip_white_space(text_, position_);
      if (closes(end)) {
        out += '}';
        return ScanStatus::kComplete;
      }
      std::string key;
      if (const ScanStatus status = tag(key, end); status != ScanStatus::kComplete) return status;
      if (!first) out += spaced_ ? ", " : ",";
      out += quote_json(key) + (spaced_ ? ": " : ":");
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const ToolParameter& each) { return each.name == key; });
      const ScanStatus status = value(out, found == known.end() ? nullptr : &*found, depth);
      if (status != ScanStatus::kComplete) return status;
    }
  }

  ScanStatus items(std::string& out, const ToolParameter* item, int depth) {
    for (bool first = true;; first = false) {
      position_ = skip_white_space(text_, position_);
      if (closes({})) {
        out += ']';
        return ScanStatus::kComplete;
      }
      std::string key;
      if (const ScanStatus status = tag(key, {}); status != ScanStatus::kComplete) return status;
      if (!first) out += spaced_ ? ", " : ",";
      if (const ScanStatus status = value(out, item, depth); status != ScanStatus::kComplete) return status;
    }
  }

  bool closes(std::string_view end) {
    if (!end.empty()) return take(end);
    return text_.substr(position_).starts_with(format_.tag_mark) &&
           text_.substr(position_ + format_.tag_mark.size()).starts_with("</");
  }

  // <key> behind its mark.
  ScanStatus tag(std::string& key, std::string_view end) {
    const bool open = position_ >= text_.size() || may_become(text_, position_, format_.tag_mark) ||
                      (!end.empty() && may_become(text_, position_, end));
    if (open) return ScanStatus::kPartial;
    if (!take(format_.tag_mark)) return ScanStatus::kMalformed;
    if (position_ >= text_.size()) return ScanStatus::kPartial;
    const std::size_t close = text_.find('>', position_);
    if (text_[position_] != '<') return ScanStatus::kMalformed;
    if (close == kNowhere) return ScanStatus::kPartial;
    key = text_.substr(position_ + 1, close - position_ - 1);
    position_ = close + 1;
    return key.empty() || key.front() == '/' ? ScanStatus::kMalformed : ScanStatus::kComplete;
  }

  // Reads a tag's content and its closing tag.
  ScanStatus value(std::string& out, const ToolParameter* known, int depth) {
    if (depth > kMaxTagNesting) return ScanStatus::kMalformed;
    const std::size_t mark = text_.find(format_.tag_mark, position_);
    const std::size_t next = mark == kNowhere ? kNowhere : mark + format_.tag_mark.size();
    if (next == kNowhere || next + 1 >= text_.size()) return ScanStatus::kPartial;
    const std::string_view written = text_.substr(position_, mark - position_);
    static const std::vector<std::string> kNoTypes;
    const auto& types = known == nullptr ? kNoTypes : known->types;
    const auto has = [&](const char* type) { return std::find(types.begin(), types.end(), type) != types.end(); };
    const bool is_text = text_.substr(next).starts_with("</");
    const bool is_empty = trim(written).empty();
    ScanStatus status = ScanStatus::kComplete;
    if (is_text && !(is_empty && !has("string") && (has("object") || has("array")))) {
      out += known != nullptr ? coerce_value(written, types, context_.spacing) : quote_json(written);
      position_ = mark;
    } else {
      const bool names_item = text_.substr(next).starts_with("<item>");
      position_ = mark;
      if (has("array") ? !has("object") || names_item : !has("object") && names_item) {
        out += '[';
        status = items(out, known == nullptr || known->items.empty() ? nullptr : &known->items.front(), depth + 1);
      } else {
        static const std::vector<ToolParameter> kNone;
        out += '{';
        status = members(out, known == nullptr ? kNone : known->members, {}, depth + 1);
      }
    }
    if (status != ScanStatus::kComplete) return status;
    const std::size_t close = text_.find('>', position_ + format_.tag_mark.size());
    if (close == kNowhere) return ScanStatus::kPartial;
    position_ = close + 1;
    return ScanStatus::kComplete;
  }

  std::string_view text_;
  const CallContext& context_;
  const ToolFormat& format_;
  bool spaced_;
  CallReading reading_;
  std::size_t position_ = 0;
};

}  // namespace

CallReading read_nested_tags(std::string_view text, const CallContext& context) {
  return NestedTagReader(text, context).run();
}

}  // namespace quire
