#include <algorithm>

#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

class NamedCallReader {
 public:
  NamedCallReader(std::string_view text, const CallContext& context)
      : text_(text), context_(context), format_(context.format) {
    stops_ = {format_.name_begin};
    if (!format_.call_end.empty()) stops_.push_back(format_.call_end);
    stops_.insert(stops_.end(), format_.ends.begin(), format_.ends.end());
  }

  CallReading run() {
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return finish(ScanStatus::kPartial);
      if (text_.substr(position_).starts_with(format_.name_begin)) {
        position_ += format_.name_begin.size();
        reading_.closed = false;
        const ScanStatus status = call();
        if (status != ScanStatus::kComplete) return finish(status);
        reading_.good_end = position_;
        continue;
      }
      if (may_become(text_, position_, format_.name_begin) && !context_.final) return finish(ScanStatus::kPartial);
      if (!context_.final && may_become_any(text_, position_, format_.starts)) return finish(ScanStatus::kPartial);
      if (const auto length = match_marker(text_, position_, format_.starts)) {
        position_ += length;
        continue;
      }
      if (const auto length = match_end(text_, position_, context_)) {
        position_ += length;
        reading_.good_end = position_;
        reading_.closed = true;
        return finish(ScanStatus::kComplete);
      }
      const bool may_go_on =
          may_become_any(text_, position_, format_.starts) || may_become_any(text_, position_, format_.ends);
      if (may_go_on && !context_.final) return finish(ScanStatus::kPartial);
      return finish(reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete);
    }
  }

 private:
  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = std::min(position_, text_.size());
    return std::move(reading_);
  }

  // The name stands before name_end; where the arguments follow it at once, before their brace.
  ScanStatus call() {
    const std::size_t begin = position_;
    const std::size_t stop = first_of_stops(begin);
    const std::size_t separator = text_.find(format_.name_end, begin);
    const std::size_t brace = format_.name_may_touch ? text_.find('{', begin) : kNowhere;
    const std::size_t name_stop = std::min(separator, brace);
    if (name_stop == kNowhere || name_stop > stop) {
      if (stop != kNowhere) return skip_broken(stop);
      return context_.final ? ScanStatus::kMalformed : ScanStatus::kPartial;
    }
    ParsedToolCall call;
    if (!read_name(text_.substr(begin, name_stop - begin), call)) {
      if (!context_.strict || stop == kNowhere) return ScanStatus::kMalformed;
      return skip_broken(stop);
    }
    position_ = skip_white_space(text_, name_stop == separator ? separator + format_.name_end.size() : brace);
    reading_.calls.push_back(std::move(call));
    reading_.unfinished = true;
    return arguments(reading_.calls.back());
  }

  // Skips text that begins like a call but contains no name.
  ScanStatus skip_broken(std::size_t stop) {
    position_ = stop;
    if (!format_.call_end.empty() && text_.substr(stop).starts_with(format_.call_end))
      position_ += format_.call_end.size();
    return ScanStatus::kComplete;
  }

  std::size_t first_of_stops(std::size_t begin) const {
    std::size_t first = kNowhere;
    for (const auto stop : stops_)
      first = std::min(first, text_.find(stop, begin));
    return first;
  }

  bool read_name(std::string_view written, ParsedToolCall& call) const {
    if (!format_.call_id.empty()) {
      const std::size_t at = written.find(format_.call_id);
      if (at != kNowhere) {
        call.id = std::string(trim(written.substr(at + format_.call_id.size())));
        written = written.substr(0, at);
      }
    }
    written = trim(written);
    if (format_.name_is_id) {
      call.id = std::string(written);
      const std::size_t colon = written.rfind(':');
      const bool numbered = colon != kNowhere && colon + 1 < written.size() &&
                            written.find_first_not_of("0123456789", colon + 1) == kNowhere;
      if (context_.strict && !numbered) return false;
      if (colon != kNowhere) written = written.substr(0, colon);
      constexpr std::string_view kSpace = "functions.";
      if (written.starts_with(kSpace)) written = written.substr(kSpace.size());
    }
    call.name = std::string(written);
    return !call.name.empty();
  }

  ScanStatus arguments(ParsedToolCall& call) {
    const std::size_t begin = position_;
    const JsonScan scan = scan_json(text_, begin, context_.spacing);
    // Markers are special tokens: where arguments are passed on as written, one ends them even inside a string.
    const std::size_t stop = format_.verbatim_arguments ? first_of_stops(begin) : kNowhere;
    if (scan.status == ScanStatus::kComplete && scan.end <= stop) {
      call.arguments = format_.verbatim_arguments ? std::string(text_.substr(begin, scan.end - begin)) : scan.text;
      position_ = scan.end;
      return after_arguments();
    }
    if (!format_.verbatim_arguments) {
      call.arguments = scan.text;
      position_ = scan.end;
      return scan.status;
    }
    if (stop == kNowhere) return unfinished_arguments(call, begin);
    call.arguments = std::string(trim_arguments(text_.substr(begin, stop - begin)));
    if (call.arguments.empty()) call.arguments = "{}";
    position_ = stop;
    return after_arguments();
  }

  std::string_view trim_arguments(std::string_view written) const {
    written = trim_end(written);
    if (!format_.fence.empty() && written.ends_with(format_.fence))
      written = trim_end(written.substr(0, written.size() - format_.fence.size()));
    return written;
  }

  // Holds back a suffix that may begin the fence or a marker.
  std::size_t held_at_end(std::string_view written) const {
    if (format_.fence.empty()) return held_back(written, stops_);
    if (written.ends_with(format_.fence)) return format_.fence.size();
    return std::max(held_back(written, stops_), held_back(written, {format_.fence}));
  }

  ScanStatus unfinished_arguments(ParsedToolCall& call, std::size_t begin) {
    const auto written = text_.substr(begin);
    const std::size_t kept = context_.final ? 0 : held_at_end(written);
    call.arguments = std::string(trim_arguments(written.substr(0, written.size() - kept)));
    position_ = text_.size();
    return ScanStatus::kPartial;
  }

  ScanStatus after_arguments() {
    reading_.unfinished = false;
    std::size_t next = skip_white_space(text_, position_);
    if (!format_.fence.empty() && text_.substr(next).starts_with(format_.fence))
      next = skip_white_space(text_, next + format_.fence.size());
    if (!format_.call_end.empty() && text_.substr(next).starts_with(format_.call_end)) {
      position_ = next + format_.call_end.size();
      reading_.closed = format_.ends.empty();
      return ScanStatus::kComplete;
    }
    if (!context_.final && (may_become(text_, next, format_.call_end) ||
                            (!format_.fence.empty() && may_become(text_, next, format_.fence)))) {
      return ScanStatus::kPartial;
    }
    position_ = next;
    return ScanStatus::kComplete;
  }

  std::string_view text_;
  const CallContext& context_;
  const ToolFormat& format_;
  std::vector<std::string_view> stops_;
  CallReading reading_;
  std::size_t position_ = 0;
};

}  // namespace

CallReading read_named_calls(std::string_view text, const CallContext& context) {
  // Mistral's older models write a JSON list after the same marker.
  if (context.format.may_be_list && !context.format.starts.empty()) {
    const std::size_t start = match_marker(text, 0, context.format.starts);
    const std::size_t after = skip_white_space(text, start);
    if (after >= text.size()) return {ScanStatus::kPartial, 0, 0, {}, false, false, false};
    if (text[after] == '[' || text[after] == '{' || (context.strict && !context.exact && text[start] == ' '))
      return read_json_calls(text, context);
  }
  return NamedCallReader(text, context).run();
}

}  // namespace quire
