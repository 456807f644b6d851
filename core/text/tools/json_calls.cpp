#include <algorithm>
#include <optional>

#include "core/base/json/json_memory.h"
#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

constexpr int kMaxWrappers = 4;  // {"tool_calls": [{"function": {...}}]}

bool is_name_key(std::string_view key, const ToolFormat& format) {
  return key == format.name_key || key == "name" || key == "tool_name";
}
bool is_arguments_key(std::string_view key, const ToolFormat& format) {
  return key == format.arguments_key || key == "arguments" || key == "parameters";
}
bool is_id_key(std::string_view key, const ToolFormat& format) {
  return key == format.id_key || key == "id" || key == "tool_call_id";
}
bool is_wrapper_key(std::string_view key) {
  return key == "function" || key == "tool_call" || key == "tool_calls";
}

// Arguments written as a JSON string that holds JSON are taken out of it once they are whole.
std::string arguments_text(const JsonScan& value, const CallContext& context) {
  if (value.text.empty() || value.text[0] == '{' || value.text[0] == '[') return value.text;
  if (value.status != ScanStatus::kComplete) return {};
  if (value.text == "null") return "{}";
  const auto inner = decode_json_string(value.text);
  if (!inner) return value.text;
  const JsonScan scan = scan_json(*inner, 0, context.spacing);
  return scan.status == ScanStatus::kComplete && scan.text[0] == '{' ? scan.text : value.text;
}

class JsonCallReader {
 public:
  JsonCallReader(std::string_view text, const CallContext& context) : text_(text), context_(context) {}

  CallReading run() {
    for (;;) {
      skip_separators();
      if (position_ >= text_.size())
        return finish(context_.strict && opened_ ? ScanStatus::kMalformed : ScanStatus::kPartial);
      if (!context_.final && may_become_any(text_, position_, context_.format.starts))
        return finish(ScanStatus::kPartial);
      // A fence opens and closes with the same marker.
      const bool closes = context_.strict && !reading_.closed && !opened_ && match_end(text_, position_, context_) != 0;
      if (const auto length = closes ? 0 : match_marker(text_, position_, context_.format.starts)) {
        if (!reading_.closed && context_.format.needs_end) return finish(ScanStatus::kMalformed);
        position_ += length;
        reading_.closed = false;
        opened_ = true;
        continue;
      }
      if (const auto length = match_end(text_, position_, context_)) {
        position_ += length;
        reading_.closed = true;
        reading_.good_end = position_;
        continue;
      }
      if (text_[position_] != '{' && text_[position_] != '[') {
        if (skip_to_next_call()) continue;
        return finish(after_calls());
      }
      const bool is_list = text_[position_] == '[';
      if (context_.strict && (is_list ? context_.format.single_objects : context_.format.lists_only))
        return finish(ScanStatus::kMalformed);
      const std::size_t num_before = reading_.calls.size();
      const ScanStatus status = value(0);
      if (status != ScanStatus::kComplete) return finish(status);
      reading_.good_end = position_;
      opened_ = false;
      if (reading_.calls.size() != num_before) continue;
      reading_.empty_list = is_list && context_.format.empty_list_is_call;
      if (!is_list || reading_.empty_list) return finish(is_list ? ScanStatus::kComplete : ScanStatus::kMalformed);
    }
  }

 private:
  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = position_;
    return std::move(reading_);
  }

  // Not eager: text between two calls is passed over.
  bool skip_to_next_call() {
    if (!context_.strict || opened_ || reading_.calls.empty()) return false;
    std::size_t next = std::string_view::npos;
    for (const auto start : context_.format.starts)
      next = std::min(next, text_.find(start, position_));
    if (next == std::string_view::npos) return false;
    position_ = next;
    return true;
  }

  // The text here begins no call: either the calls end here, or a marker is incomplete.
  ScanStatus after_calls() {
    const auto& format = context_.format;
    if (!context_.final &&
        (may_become_any(text_, position_, format.starts) || may_become_any(text_, position_, format.ends))) {
      return ScanStatus::kPartial;
    }
    if (reading_.calls.empty() && context_.final && format.skips_to_json) {
      const std::size_t list = text_.find("[{", position_);
      if (list != std::string_view::npos) {
        position_ = list;
        if (value(0) == ScanStatus::kComplete) return ScanStatus::kComplete;
      }
    }
    if (context_.strict && opened_) return ScanStatus::kMalformed;
    return reading_.closed || !reading_.calls.empty() ? ScanStatus::kComplete : ScanStatus::kMalformed;
  }

  void skip_separators() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      const bool separator = !reading_.calls.empty() && (c == ',' || c == ';');
      const std::size_t next = skip_white_space(text_, position_);
      if (next == position_ && !separator) return;
      position_ = separator ? position_ + 1 : next;
    }
  }

  ScanStatus value(int depth) { return text_[position_] == '[' ? list(depth) : object(depth); }

  // Not eager, a list that is cut off is malformed, unless the format mends it.
  ScanStatus list(int depth) {
    const ScanStatus status = items(depth);
    const bool broken = context_.strict && !context_.format.mends_cut_off && status == ScanStatus::kPartial;
    return broken ? ScanStatus::kMalformed : status;
  }

  ScanStatus items(int depth) {
    ++position_;
    for (bool first = true;; first = false) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return ScanStatus::kPartial;
      if (text_[position_] == ']') {
        ++position_;
        return ScanStatus::kComplete;
      }
      if (!first) {
        if (text_[position_] != ',') return ScanStatus::kMalformed;
        position_ = skip_white_space(text_, position_ + 1);
        if (position_ >= text_.size()) return ScanStatus::kPartial;
      }
      if (text_[position_] != '{') return ScanStatus::kMalformed;
      if (const ScanStatus status = object(depth); status != ScanStatus::kComplete) return status;
    }
  }

  ScanStatus object(int depth) {
    const JsonMembers members = scan_members(text_, position_, context_.spacing);
    if (context_.format.name_is_key) return keyed_calls(members);
    for (const auto& member : members.members) {
      if (names_call(member)) break;
      if (depth < kMaxWrappers && is_wrapper_key(member.key) && !member.value.text.empty() &&
          member.value.text[0] != '"') {
        return wrapped(member, members, depth);
      }
    }
    position_ = members.end;
    auto call = named_call(members);
    const bool whole = members.status == ScanStatus::kComplete;
    if (!call || (whole && call->name.empty())) return ScanStatus::kMalformed;
    if (whole && call->arguments.empty()) {
      if (context_.strict && context_.format.needs_arguments) return ScanStatus::kMalformed;
      call->arguments = "{}";
    }
    if (!call->name.empty()) {
      reading_.calls.push_back(std::move(*call));
      reading_.unfinished = !whole;
      if (whole) reading_.good_end = position_;
    }
    return members.status;
  }

  ScanStatus wrapped(const JsonMember& member, const JsonMembers& members, int depth) {
    const std::size_t end = members.end;
    if (member.value.text[0] != '{' && member.value.text[0] != '[') return ScanStatus::kMalformed;
    position_ = member.begin;
    const ScanStatus status = value(depth + 1);
    if (status == ScanStatus::kComplete) reading_.good_end = position_ = end;
    return status == ScanStatus::kComplete ? members.status : status;
  }

  // From here on the object is this call: its name may have been passed on.
  bool names_call(const JsonMember& member) const {
    return is_name_key(member.key, context_.format) && member.value.status == ScanStatus::kComplete &&
           !decode_json_string(member.value.text).value_or("").empty();
  }

  // Returns nothing if the members cannot become a call. If a key is given twice, the first one counts, since it may
  // have been sent already.
  std::optional<ParsedToolCall> named_call(const JsonMembers& members) const {
    ParsedToolCall call;
    for (const auto& member : members.members) {
      const auto& value = member.value;
      const bool complete = value.status == ScanStatus::kComplete;
      if (is_name_key(member.key, context_.format) || member.key == "function") {
        if (!call.name.empty()) continue;
        if (!value.text.empty() && value.text[0] != '"') return std::nullopt;
        if (complete) call.name = decode_json_string(value.text).value_or("");
      } else if (is_arguments_key(member.key, context_.format)) {
        if (call.arguments.empty()) call.arguments = arguments_text(value, context_);
      } else if (is_id_key(member.key, context_.format) && complete && call.id.empty()) {
        const auto id = decode_json_string(value.text);
        call.id = id ? *id : value.text;
      }
    }
    return call;
  }

  // {"name": {arguments}}: each member is a call.
  ScanStatus keyed_calls(const JsonMembers& members) {
    position_ = members.end;
    for (const auto& member : members.members) {
      const auto& value = member.value;
      if (member.key.empty() || value.text.empty() || value.text[0] != '{') {
        const bool unknown_yet = value.text.empty() && value.status == ScanStatus::kPartial;
        return unknown_yet ? ScanStatus::kPartial : ScanStatus::kMalformed;
      }
      reading_.calls.push_back({"", member.key, value.text});
      reading_.unfinished = value.status != ScanStatus::kComplete;
      if (!reading_.unfinished) reading_.good_end = value.end;
    }
    if (members.status == ScanStatus::kComplete) reading_.good_end = members.end;
    return members.status;
  }

  std::string_view text_;
  const CallContext& context_;
  CallReading reading_;
  std::size_t position_ = 0;
  bool opened_ = false;  // a start was read, but no call yet
};

// Bare JSON may stand anywhere in a finished output: the first object that is a call begins the calls.
CallReading find_bare_calls(std::string_view text, const CallContext& context) {
  for (std::size_t begin = text.find_first_of("{["); begin != std::string_view::npos;
       begin = text.find_first_of("{[", begin + 1)) {
    CallReading reading = JsonCallReader(text.substr(begin), context).run();
    if (reading.calls.empty() || reading.unfinished) continue;
    reading.end += begin;
    reading.good_end += begin;
    reading.status = ScanStatus::kComplete;
    return reading;
  }
  return {ScanStatus::kMalformed, 0, 0, {}, false, true, false};
}

}  // namespace

CallReading read_json_calls(std::string_view text, const CallContext& context) {
  if (context.format.bare_anywhere && context.final && context.strict) return find_bare_calls(text, context);
  return JsonCallReader(text, context).run();
}

}  // namespace quire
