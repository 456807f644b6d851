// Output with markers in it: reasoning between tags, content, calls from a start marker on.
#include <algorithm>

#include "core/text/tools/output_parser_state.h"

namespace quire {
namespace {

constexpr auto kNowhere = std::string_view::npos;

bool is_blank(std::string_view text) {
  return skip_white_space(text, 0) == text.size();
}

std::size_t trimmed_size(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return last == kNowhere ? 0 : last + 1;
}

enum class MarkerKind { kNone, kThinkBegin, kThinkEnd, kCall, kBareCall, kDropped };

struct Marker {
  MarkerKind kind = MarkerKind::kNone;
  std::size_t position = kNowhere;
  std::size_t length = 0;
};

class MarkedState final : public OutputParser::State {
 public:
  MarkedState(const ToolFormat& format, std::vector<ToolSpec> tools, OutputParserOptions options)
      : State(format, std::move(tools), std::move(options)) {
    if (format_.syntax == CallSyntax::kNone) options_.parse_tools = false;
    if (options_.exact) {
      format_.mends_cut_off = false;
      format_.keeps_text_after_calls = true;
    }
    if (options_.parse_reasoning) {
      format_.dropped.insert(format_.dropped.end(), format_.answer_tags.begin(), format_.answer_tags.end());
    } else {
      keep_think_tags();
    }
    if (!options_.eager && !options_.exact && format_.first_start_only) format_.starts.resize(1);
    if (options_.json_content) format_.dropped.insert(format_.dropped.end(), {"```json", "```"});
    begin();
  }

  bool in_reasoning() const override { return mode_ == Mode::kReasoning; }

 private:
  enum class Mode { kReasoning, kContent, kCalls };

  // Stray think tags are dropped only where reasoning is taken out.
  void keep_think_tags() {
    std::erase_if(format_.dropped, [this](std::string_view text) {
      return text == format_.think_end || format_.think_begin.starts_with(text);
    });
  }

  void begin() {
    const std::string& prompt = options_.prompt_end;
    const std::size_t opened = format_.think_begin.empty() ? kNowhere : prompt.rfind(format_.think_begin);
    const std::size_t closed = format_.think_end.empty() ? kNowhere : prompt.rfind(format_.think_end);
    const bool open =
        opened != kNowhere && (closed == kNowhere || closed < opened || format_.think_end == format_.think_begin);
    if (!options_.parse_reasoning) {
      if (open) emit_content(prompt.substr(opened));
    } else if (open || (opened == kNowhere && closed == kNowhere && format_.starts_in_reasoning)) {
      mode_ = Mode::kReasoning;
      if (open) emit_reasoning(std::string_view(prompt).substr(opened + format_.think_begin.size()), false);
    }
    if (mode_ == Mode::kContent) pending_ += format_.prompt_start;
    whole_is_region_ =
        options_.parse_tools && !options_.eager && !options_.exact && (format_.bare_anywhere || format_.begins_output);
  }

  void process(bool final) override {
    while (step(final)) {
    }
    if (final) finish_content();
  }

  // Returns whether it advanced and may advance further.
  bool step(bool final) {
    switch (mode_) {
      case Mode::kReasoning: return step_reasoning(final);
      case Mode::kContent: return step_content(final);
      case Mode::kCalls: return options_.eager ? step_calls(final) : final && finish_calls();
    }
    return false;
  }

  // --- reasoning

  void emit_reasoning(std::string_view text, bool last) {
    std::string whole = std::exchange(held_reasoning_, {}) + std::string(text);
    std::string_view rest = whole;
    if (!reasoning_begun_) rest.remove_prefix(skip_white_space(rest, 0));
    const std::size_t kept = trimmed_size(rest);
    if (kept != 0) reasoning_begun_ = true;
    add_reasoning(rest.substr(0, kept));
    if (!last && reasoning_begun_) held_reasoning_ = rest.substr(kept);
  }

  // Markers that end the reasoning: its own end, or a call's start.
  std::vector<std::string_view> reasoning_stops() const {
    std::vector<std::string_view> stops{format_.think_end};
    const bool calls = format_.calls_end_reasoning || (format_.calls_in_open_reasoning && suspended_.empty());
    if (calls && options_.parse_tools) stops.insert(stops.end(), format_.starts.begin(), format_.starts.end());
    return stops;
  }

  bool step_reasoning(bool final) {
    const std::vector<std::string_view> stops = reasoning_stops();
    std::size_t first = kNowhere;
    for (const auto stop : stops)
      first = std::min(first, pending_.find(stop));
    if (first == kNowhere) {
      if (final && !suspended_.empty()) return finish_open_reasoning();
      const std::size_t held = final ? 0 : held_back(pending_, stops);
      take_reasoning(pending_.size() - held, final);
      return false;
    }
    const bool closed = pending_.compare(first, format_.think_end.size(), format_.think_end) == 0;
    if (!closed && !format_.calls_end_reasoning) {
      take_reasoning(first, false);
      suspended_ = pending_.substr(0, 1);
      pending_.erase(0, 1);
      return true;
    }
    take_reasoning(first, true);
    pending_.erase(0, closed ? format_.think_end.size() : 0);
    begin_content();
    return true;
  }

  void take_reasoning(std::size_t count, bool last) {
    if (suspended_.empty()) {
      emit_reasoning(std::string_view(pending_).substr(0, count), last);
    } else {
      suspended_.append(pending_, 0, count);
      if (last) emit_reasoning(std::exchange(suspended_, {}), true);
    }
    pending_.erase(0, count);
  }

  // Reads suspended text as a call, now that no end of the reasoning followed it.
  bool finish_open_reasoning() {
    pending_.insert(0, std::exchange(suspended_, {}));
    const CallReading reading = read(true);
    const bool whole = !reading.calls.empty() && !reading.unfinished;
    take_reasoning(whole ? 0 : pending_.size(), true);
    if (whole) begin_content();
    return whole;
  }

  void begin_content() {
    mode_ = Mode::kContent;
    skips_space_ = true;
    reasoning_begun_ = false;
  }

  // --- content

  // White space at the content's end goes, whatever follows: it belongs to a fence or to tags around it.
  bool trims_end() const { return options_.json_content || (options_.parse_reasoning && !format_.answer_tags.empty()); }

  void emit_content(std::string_view text) {
    std::string whole = std::exchange(held_content_, {}) + std::string(text);
    std::string_view rest = whole;
    if (skips_space_) rest.remove_prefix(skip_white_space(rest, 0));
    const bool hold_all = options_.parse_tools && !options_.eager && format_.drops_content_with_calls;
    std::size_t kept = rest.size();
    if (hold_all || (!content_begun_ && is_blank(rest))) {
      kept = 0;
    } else if (format_.trims_content || trims_end()) {
      kept = trimmed_size(rest);
    }
    if (kept != 0) {
      content_begun_ = true;
      skips_space_ = false;
    }
    add_content(rest.substr(0, kept));
    held_content_ = rest.substr(kept);
  }

  // White space held back belongs to the content only where no calls follow it.
  void finish_content() {
    const bool wanted = !any_calls_ && !trims_end();
    if (wanted) add_content(held_content_);
    held_content_.clear();
  }

  bool reasoning_may_begin() const {
    return options_.parse_reasoning && !format_.think_begin.empty() &&
           (format_.reasoning_anywhere || (!content_begun_ && !any_calls_));
  }

  // Models asked not to think may begin with the end of a reasoning all the same.
  bool reasoning_may_end() const { return reasoning_may_begin() && !content_begun_ && !any_calls_; }

  void consider(Marker& best, MarkerKind kind, std::string_view text) const {
    const std::size_t found = text.empty() ? kNowhere : pending_.find(text);
    if (found == kNowhere || found > best.position || (found == best.position && text.size() <= best.length)) return;
    best = {kind, found, text.size()};
  }

  std::vector<std::string_view> content_markers() const {
    std::vector<std::string_view> markers = format_.dropped;
    if (options_.parse_tools) markers.insert(markers.end(), format_.starts.begin(), format_.starts.end());
    const bool opaque = format_.skips_reasoning && !options_.parse_reasoning;
    if (reasoning_may_begin() || opaque) markers.push_back(format_.think_begin);
    if (reasoning_may_end()) markers.push_back(format_.think_end);
    return markers;
  }

  std::size_t find_bare() const {
    if (!options_.parse_tools) return kNowhere;
    const bool json = format_.syntax == CallSyntax::kJson;
    if (format_.bare_anywhere && !json) return pending_.find('[', bare_from_);
    if (!(format_.bare_at_begin || format_.bare_anywhere) || content_begun_ || any_calls_) return kNowhere;
    const std::size_t first = skip_white_space(pending_, 0);
    if (first >= pending_.size() || first < bare_from_) return kNowhere;
    return pending_[first] == '[' || (json && pending_[first] == '{') ? first : kNowhere;
  }

  Marker next_marker() const {
    Marker best;
    for (const auto text : format_.dropped)
      consider(best, MarkerKind::kDropped, text);
    if (options_.parse_tools) {
      for (const auto text : format_.starts)
        consider(best, MarkerKind::kCall, text);
    }
    if (reasoning_may_begin()) consider(best, MarkerKind::kThinkBegin, format_.think_begin);
    if (reasoning_may_end()) consider(best, MarkerKind::kThinkEnd, format_.think_end);
    if (const std::size_t bare = find_bare(); bare < best.position) best = {MarkerKind::kBareCall, bare, 0};
    return best;
  }

  bool step_content(bool final) {
    if (whole_is_region_) {
      mode_ = Mode::kCalls;
      return final;
    }
    if (skips_open_reasoning(final)) return false;
    const Marker marker = next_marker();
    if (marker.kind == MarkerKind::kNone) {
      const std::size_t held = final ? 0 : held_back(pending_, content_markers());
      take_content(pending_.size() - held);
      return false;
    }
    // Reasoning begins and ends only before any content, which the text before the marker may be.
    const bool early =
        marker.kind == MarkerKind::kThinkEnd || (marker.kind == MarkerKind::kThinkBegin && !format_.reasoning_anywhere);
    if (early && !is_blank(std::string_view(pending_).substr(0, marker.position))) {
      take_content(marker.position);
      return true;
    }
    take_content(marker.position);
    // A longer marker may be on its way.
    if (!final && may_become_any(pending_, 0, content_markers())) return false;
    if (marker.kind == MarkerKind::kCall || marker.kind == MarkerKind::kBareCall) {
      // Reasoning that is left in the content keeps the tag that a call's start ends it with.
      const bool with_tag = marker.length > format_.think_end.size() && pending_.starts_with(format_.think_end);
      const std::size_t tag = with_tag ? format_.think_end.size() : 0;
      take_content(tag);
      mode_ = Mode::kCalls;
      bare_ = marker.kind == MarkerKind::kBareCall;
      start_length_ = std::max<std::size_t>(marker.length - tag, 1);
      num_reread_ = 0;
      return true;
    }
    pending_.erase(0, marker.length);
    if (marker.kind == MarkerKind::kThinkBegin) {
      mode_ = Mode::kReasoning;
      held_content_.clear();
    }
    if (marker.kind == MarkerKind::kThinkEnd) begin_content();
    return true;
  }

  // Reasoning that is left in the content may speak of calls: it is passed over, up to where it ends.
  bool skips_open_reasoning(bool final) {
    if (!format_.skips_reasoning || options_.parse_reasoning) return false;
    const std::size_t begin = pending_.find(format_.think_begin);
    if (begin == kNowhere || next_marker().position < begin) return false;
    const std::size_t end = pending_.find(format_.think_end, begin);
    if (end == kNowhere && !final) return true;
    take_content(end == kNowhere ? pending_.size() : end + format_.think_end.size());
    return skips_open_reasoning(final);
  }

  void take_content(std::size_t count) {
    emit_content(std::string_view(pending_).substr(0, count));
    pending_.erase(0, count);
    bare_from_ = bare_from_ > count ? bare_from_ - count : 0;
  }

  // --- calls

  CallReading read(bool final) const {
    return read_calls(pending_, {format_, tools_, final, !options_.eager,
                                 options_.eager ? JsonSpacing::kSpaced : JsonSpacing::kCompact, options_.exact});
  }

  // A growing call is parsed again when it has grown by 1/64: the work stays linear.
  bool is_due(bool final) {
    if (!final && pending_.size() < num_reread_ + num_reread_ / 64) return false;
    num_reread_ = pending_.size();
    return true;
  }

  bool step_calls(bool final) {
    if (pending_.empty() || !is_due(final)) return false;
    CallReading reading = read(final);
    const bool unknown =
        bare_ && !reading.calls.empty() && !tools_.empty() && find_tool(tools_, reading.calls[0].name) == nullptr;
    if (reading.calls.empty() || unknown) {
      if (reading.status == ScanStatus::kPartial && !unknown && !final) return false;
      return give_up();
    }
    if (reading.status == ScanStatus::kMalformed && reading.unfinished && !keep_rest(reading, final)) {
      emit(reading);
      return false;
    }
    emit(reading);
    if (reading.status == ScanStatus::kPartial && !final) return false;
    num_calls_ += reading.calls.size();
    pending_.erase(0, consumed(reading));
    mode_ = Mode::kContent;
    skips_space_ = true;
    return true;
  }

  // Number of bytes read. If reading stopped inside a call that was not emitted, the rest is read again as content.
  std::size_t consumed(const CallReading& reading) const {
    if (reading.status == ScanStatus::kComplete) return reading.end;
    if (!reading.unfinished) return std::max<std::size_t>(reading.good_end, 1);
    return reading.status == ScanStatus::kPartial ? pending_.size() : reading.end;
  }

  void emit(const CallReading& reading) {
    if (!any_calls_) held_content_.clear();
    any_calls_ = true;
    emit_calls(reading.calls, num_calls_);
  }

  // Arguments that turned out not to be JSON are passed on as they are, up to the call's end. False where that is not
  // there yet.
  bool keep_rest(CallReading& reading, bool final) const {
    std::size_t end = kNowhere;
    for (const auto marker : format_.ends)
      end = std::min(end, pending_.find(marker, reading.end));
    if (end == kNowhere && !final) return false;
    const auto rest = std::string_view(pending_).substr(reading.end, std::min(end, pending_.size()) - reading.end);
    reading.calls.back().arguments += rest.substr(0, trimmed_size(rest));
    reading.end = std::min(end, pending_.size());
    reading.end += match_marker(pending_, reading.end, format_.ends);
    return true;
  }

  // The text looked like a call but is none: it becomes content.
  bool give_up() {
    mode_ = Mode::kContent;
    const std::size_t length = std::min(start_length_, pending_.size());
    bare_from_ = 0;
    take_content(length);
    return true;
  }

  // Not eager: the output is over, and all from the first start on is here.
  bool finish_calls() {
    whole_is_region_ = false;
    mode_ = Mode::kContent;
    std::size_t begin = 0;
    if (format_.begins_output) {
      begin = skip_white_space(pending_, 0);
      const bool starts = match_marker(pending_, begin, format_.starts) != 0;
      const bool bare = (format_.bare_at_begin || format_.bare_anywhere) && begin < pending_.size() &&
                        (pending_[begin] == '[' || pending_[begin] == '{');
      if (!starts && !bare) return refuse_calls();
    }
    const std::string whole = std::exchange(pending_, pending_.substr(begin));
    CallReading reading = read(true);
    bool cut_off = reading.unfinished && !format_.mends_cut_off;
    // If each call has its own end marker, the calls before a cut-off one are kept.
    const bool separate = format_.syntax == CallSyntax::kNamedJson || format_.syntax == CallSyntax::kTagged;
    if (cut_off && separate && !format_.call_end.empty() && (reading.calls.size() > 1 || format_.start_is_enough)) {
      reading.calls.pop_back();
      cut_off = false;
    }
    const bool followed = format_.ends_output && skip_white_space(pending_, reading.end) < pending_.size();
    const bool broken =
        reading.status == ScanStatus::kMalformed || cut_off || followed || (!reading.closed && format_.needs_end);
    if (broken || (reading.calls.empty() && !format_.start_is_enough && !reading.empty_list)) {
      pending_ = whole;
      return refuse_calls();
    }
    emit(reading);
    num_calls_ += reading.calls.size();
    any_calls_ = true;
    held_content_.clear();
    pending_.erase(0, reading.end);
    std::string rest = finish_further_calls();
    pending_.clear();
    if (format_.keeps_text_after_calls) keep_text_after(std::move(rest));
    return false;
  }

  // Emits the calls of whole sections behind the first one. Returns the text around them.
  std::string finish_further_calls() {
    std::string text;
    for (std::size_t start = next_start(); start != kNowhere; start = next_start()) {
      const std::string section = pending_.substr(start);
      text += std::exchange(pending_, section).substr(0, start);
      const CallReading further = read(true);
      if (further.calls.empty() || further.unfinished || further.status == ScanStatus::kMalformed) break;
      emit(further);
      num_calls_ += further.calls.size();
      pending_.erase(0, further.end);
    }
    return text + pending_;
  }

  std::size_t next_start() const {
    std::size_t first = kNowhere;
    for (const auto start : format_.starts)
      first = std::min(first, pending_.find(start));
    return first;
  }

  void keep_text_after(std::string rest) {
    for (const auto& end : format_.ends) {
      if (const std::size_t echo = rest.rfind(end); echo != kNowhere) rest.erase(0, echo + end.size());
    }
    const std::size_t begin = skip_white_space(rest, 0);
    if (begin == rest.size()) return;
    if (content_begun_) add_content("\n");
    add_content(rest.substr(begin, trimmed_size(rest) - begin));
  }

  bool refuse_calls() {
    if (format_.start_is_enough) {
      any_calls_ = true;
      held_content_.clear();
    } else {
      std::string text = std::exchange(held_content_, {}) + pending_;
      if (format_.checks_schema) text.resize(trimmed_size(text));
      add_content(text);
    }
    pending_.clear();
    return false;
  }

  Mode mode_ = Mode::kContent;
  bool whole_is_region_ = false;
  bool reasoning_begun_ = false;
  bool content_begun_ = false;
  bool skips_space_ = false;
  bool any_calls_ = false;
  bool bare_ = false;
  std::size_t bare_from_ = 0;
  std::size_t start_length_ = 1;
  std::size_t num_reread_ = 0;
  std::size_t num_calls_ = 0;
  std::string held_reasoning_;
  std::string suspended_;  // reasoning from a call's start on: a call after all where the reasoning is never closed
  std::string held_content_;
};

}  // namespace

std::unique_ptr<OutputParser::State> make_marked_state(const ToolFormat& format, std::vector<ToolSpec> tools,
                                                       OutputParserOptions options) {
  return std::make_unique<MarkedState>(format, std::move(tools), std::move(options));
}

}  // namespace quire
