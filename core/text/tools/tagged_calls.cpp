#include <algorithm>
#include <iterator>
#include <utility>

#include "core/text/tools/call_reader.h"

namespace quire {
namespace {

bool is_string_only(const std::vector<std::string>& types) {
  return std::all_of(types.begin(), types.end(), [](const auto& type) { return type == "string"; });
}

constexpr std::string_view kCdataBegin = "<![CDATA[";
constexpr std::string_view kCdataEnd = "]]>";

// Decodes XML text: CDATA is copied, other text has its entities replaced.
std::string xml_text(std::string_view text) {
  constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
  text = trim(text);
  if (text.starts_with(kCdataBegin) && text.ends_with(kCdataEnd)) {
    text.remove_prefix(kCdataBegin.size());
    text.remove_suffix(std::min(kCdataEnd.size(), text.size()));
    return std::string(text);
  }
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto* const entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                            [&](const auto& e) { return text.substr(i).starts_with(e.first); });
    out += entity != std::end(kEntities) ? entity->second : text[i];
    i += entity != std::end(kEntities) ? entity->first.size() : 1;
  }
  return out;
}

struct Parameter {
  std::string key;
  std::string value;                                                   // its text
  enum class Kind { kBySchema, kText, kJson } kind = Kind::kBySchema;  // type declared by its tag
  bool whole = false;
};

// Value of `attribute` (such as type=") in `tag`; empty if absent.
std::string_view attribute_of(std::string_view tag, std::string_view attribute) {
  const std::size_t found = tag.find(attribute);
  if (found == kNowhere) return {};
  tag.remove_prefix(found + attribute.size());
  return tag.substr(0, tag.find('"'));
}

class TaggedReader {
 public:
  TaggedReader(std::string_view text, const CallContext& context)
      : text_(text), context_(context), format_(context.format) {
    if (is_lenient()) {
      value_stops_ = {format_.parameter_end, format_.parameter_begin, format_.call_end};
    } else {
      value_stops_ = {format_.parameter_end};
    }
    followers_ = {format_.parameter_begin, format_.call_end};
    followers_.insert(followers_.end(), format_.ends.begin(), format_.ends.end());
  }

  CallReading run() {
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) return finish(ScanStatus::kPartial);
      // In formats whose call tag is the opening marker (GLM), that tag comes first.
      if (text_.substr(position_).starts_with(format_.name_begin)) {
        position_ += format_.name_begin.size();
        reading_.closed = false;
        if (const ScanStatus status = call(); status != ScanStatus::kComplete) return finish(status);
        reading_.good_end = position_;
        continue;
      }
      if (may_become(text_, position_, format_.name_begin) && !context_.final) return finish(ScanStatus::kPartial);
      if (!context_.final && may_become_any(text_, position_, format_.starts)) return finish(ScanStatus::kPartial);
      if (const auto length = match_marker(text_, position_, format_.starts)) {
        position_ += length;
      } else if (const auto end_length = match_end(text_, position_, context_)) {
        position_ += end_length;
        reading_.good_end = position_;
        reading_.closed = true;
      } else if (!skip_to_next_call()) {
        return finish(no_call_here());
      }
    }
  }

 private:
  // A value ends at any tag, as where calls are read by a format's name alone.
  bool is_lenient() const { return context_.strict && !context_.exact; }

  CallReading finish(ScanStatus status) {
    reading_.status = status;
    reading_.end = std::min(position_, text_.size());
    return std::move(reading_);
  }

  ScanStatus no_call_here() {
    if (!context_.final &&
        (may_become_any(text_, position_, format_.starts) || may_become_any(text_, position_, format_.ends))) {
      return ScanStatus::kPartial;
    }
    return reading_.calls.empty() ? ScanStatus::kMalformed : ScanStatus::kComplete;
  }

  // Not eager: text between two calls is passed over, or all beside them where the format drops it.
  bool skip_to_next_call() {
    if (!context_.strict || (reading_.calls.empty() && !format_.drops_content_with_calls)) return false;
    const std::size_t next = text_.find(format_.name_begin, position_);
    if (next == kNowhere) return false;
    position_ = next;
    return true;
  }

  // The name ends at name_end, at a line end, at the first parameter or at the call's end, depending on the format.
  std::size_t find_name_end(std::size_t begin, std::size_t& after) const {
    std::size_t end = format_.name_end.empty() ? text_.find('\n', begin) : text_.find(format_.name_end, begin);
    after = end == kNowhere ? kNowhere : end + std::max<std::size_t>(format_.name_end.size(), 1);
    for (const auto stop : {format_.parameter_begin, format_.call_end}) {
      const std::size_t found = text_.find(stop, begin);
      if (found < end) end = after = found;
    }
    return end;
  }

  ScanStatus call() {
    const std::size_t begin = position_;
    std::size_t after = 0;
    const std::size_t end = find_name_end(begin, after);
    if (end == kNowhere) return context_.final ? ScanStatus::kMalformed : ScanStatus::kPartial;
    const std::string name = first_attribute(text_.substr(begin, end - begin), format_.name_end);
    position_ = after;
    const bool broken = name.empty() || (format_.needs_name_end && after == end);
    if (broken) return skip_call();
    tool_ = find_tool(context_.tools, name);
    reading_.calls.push_back({"", name, ""});
    reading_.unfinished = true;
    return parameters();
  }

  // A call whose name is malformed is passed over.
  ScanStatus skip_call() {
    const std::size_t end = text_.find(format_.call_end, position_);
    if (end == kNowhere) return context_.final ? ScanStatus::kMalformed : ScanStatus::kPartial;
    position_ = end + format_.call_end.size();
    return ScanStatus::kComplete;
  }

  ScanStatus parameters() {
    std::vector<Parameter> read;
    for (;;) {
      position_ = skip_white_space(text_, position_);
      if (position_ >= text_.size()) break;
      if (text_.substr(position_).starts_with(format_.call_end)) {
        position_ += format_.call_end.size();
        reading_.closed = format_.ends.empty();
        return finish_call(read, ScanStatus::kComplete);
      }
      if (text_.substr(position_).starts_with(format_.parameter_begin)) {
        position_ += format_.parameter_begin.size();
        Parameter parameter;
        if (!read_parameter(parameter)) break;
        read.push_back(std::move(parameter));
        if (!read.back().whole) break;
        continue;
      }
      const bool may_go_on =
          may_become(text_, position_, format_.call_end) || may_become(text_, position_, format_.parameter_begin);
      if (may_go_on && !context_.final) break;
      // Text between parameters, or the end of all calls without the call's own end: the call is complete as it is.
      if (match_marker(text_, position_, format_.ends) != 0 || match_marker(text_, position_, format_.starts) != 0) {
        return finish_call(read, ScanStatus::kComplete);
      }
      ++position_;
    }
    return finish_call(read, ScanStatus::kPartial);
  }

  ScanStatus finish_call(const std::vector<Parameter>& read, ScanStatus status) {
    const bool whole = status == ScanStatus::kComplete;
    reading_.unfinished = !whole;
    if (!context_.strict || !format_.checks_schema) {
      const bool mends = context_.final && context_.strict && format_.mends_cut_off;
      reading_.calls.back().arguments = arguments_text(read, whole || mends);
    } else if (const auto fitted = fit_to_schema(read)) {
      reading_.calls.back().arguments = arguments_text(*fitted, true);
    } else {
      reading_.calls.pop_back();
      reading_.unfinished = false;
    }
    return status;
  }

  // The parameters that the tool knows; nothing where the tool is unknown, one is given twice or a required one is
  // missing.
  std::optional<std::vector<Parameter>> fit_to_schema(const std::vector<Parameter>& read) const {
    if (tool_ == nullptr) return std::nullopt;
    std::vector<Parameter> given;
    for (const auto& parameter : read) {
      if (!is_wrapper(parameter)) {
        given.push_back(parameter);
      } else if (!unwrap(parameter.value, given)) {
        return std::nullopt;
      }
    }
    std::vector<Parameter> kept;
    for (auto& parameter : given) {
      const auto same = [&parameter](const Parameter& other) { return other.key == parameter.key; };
      if (std::any_of(kept.begin(), kept.end(), same)) return std::nullopt;
      if (find_parameter(tool_, parameter.key) != nullptr || tool_->parameters.empty())
        kept.push_back(std::move(parameter));
    }
    for (const auto& known : tool_->parameters) {
      const auto same = [&known](const Parameter& parameter) { return parameter.key == known.name; };
      if (known.required && std::none_of(kept.begin(), kept.end(), same)) return std::nullopt;
    }
    return kept;
  }

  // The members of an object that holds all the parameters, written as JSON or as a Python dict.
  bool unwrap(std::string_view text, std::vector<Parameter>& given) const {
    const auto json = python_literal_to_json(text, context_.spacing);
    const JsonMembers members = scan_members(json ? *json : text, 0, context_.spacing);
    if (members.status != ScanStatus::kComplete) return false;
    for (const auto& member : members.members) {
      const auto string = decode_json_string(member.value.text);
      given.push_back({member.key, string ? *string : member.value.text, Parameter::Kind::kBySchema, true});
    }
    return true;
  }

  // The key stands before key_end; attributes may stand between (key" string="true">, key" type="number"<|sep|>).
  bool read_parameter(Parameter& parameter) {
    const std::size_t key_end = text_.find(format_.key_end, position_);
    if (key_end == kNowhere) return false;
    const std::string_view tag = text_.substr(position_, key_end - position_);
    parameter.key = first_attribute(tag, format_.key_end);
    if (!format_.value_attribute.empty()) {
      const std::string_view word = attribute_of(tag, format_.value_attribute);
      const bool counts = !is_lenient();  // else the tool's schema goes before "it is no text"
      if (word == format_.text_word) parameter.kind = Parameter::Kind::kText;
      if (!word.empty() && word != format_.text_word && counts) parameter.kind = Parameter::Kind::kJson;
    }
    position_ = key_end + format_.key_end.size();
    if (!format_.value_begin.empty()) {
      position_ = skip_white_space(text_, position_);
      if (!text_.substr(position_).starts_with(format_.value_begin)) return false;
      position_ += format_.value_begin.size();
    }
    read_value(parameter);
    return true;
  }

  // The search for a value's end starts after its CDATA, in which tags are text.
  std::size_t end_of_opaque() const {
    if (!format_.xml_values) return position_;
    const std::size_t begin = skip_white_space(text_, position_);
    const bool opaque =
        text_.substr(begin).starts_with(kCdataBegin) || (!context_.final && may_become(text_, begin, kCdataBegin));
    return opaque ? std::min(text_.find(kCdataEnd, begin), text_.size()) : position_;
  }

  // A name or key up to its closing quote, where further attributes may follow it before `tag_end`.
  static std::string first_attribute(std::string_view tag, std::string_view tag_end) {
    const std::size_t quote = tag_end.starts_with('"') ? kNowhere : tag.find('"');
    return quote == kNowhere ? std::string(trim(tag)) : xml_text(tag.substr(0, quote));
  }

  void read_value(Parameter& parameter) {
    bool is_certain = true;
    std::size_t length = 0;
    std::size_t end = is_lenient() ? first_stop(length) : end_of_value(parameter, length, is_certain);
    parameter.whole = (end != kNowhere && is_certain) || (context_.final && is_lenient());
    std::string_view value = text_.substr(position_, std::min(end, text_.size()) - position_);
    if (end == kNowhere && !is_lenient()) {
      const std::size_t held = held_at_end(value);
      value.remove_suffix(held);
      // The closing tag was left out.
      if (context_.final && held > 0) {
        parameter.whole = true;
        end = position_ + value.size();
        length = 0;
      }
    } else if (end == kNowhere && !context_.final) {
      value.remove_suffix(held_back(value, value_stops_));
    }
    if (format_.trims_values) {
      const bool on_own_lines = value.starts_with('\n');
      if (on_own_lines) value.remove_prefix(1);
      if (on_own_lines && value.ends_with('\n')) value.remove_suffix(1);
    }
    // An XML value can be decoded only once it is complete.
    parameter.value = !format_.xml_values ? std::string(value) : parameter.whole ? xml_text(value) : "";
    position_ = end == kNowhere ? text_.size() : end + length;
  }

  // Strict: any tag ends a value; a tag that opens the next item is not consumed.
  std::size_t first_stop(std::size_t& length) const {
    std::size_t end = kNowhere;
    const std::size_t from = end_of_opaque();
    for (const auto stop : value_stops_) {
      const std::size_t found = text_.find(stop, from);
      if (found >= end) continue;
      end = found;
      length = stop == format_.parameter_end ? stop.size() : 0;
    }
    return end;
  }

  // A closing tag ends a value only where the next argument or the end of the call follows. Not certain: more text
  // decides.
  std::size_t end_of_value(const Parameter& parameter, std::size_t& length, bool& is_certain) const {
    length = format_.parameter_end.size();
    if (takes_json_only(parameter)) {
      const JsonScan scan = scan_json(text_, position_, context_.spacing);
      const std::size_t end = skip_white_space(text_, scan.end);
      if (scan.status == ScanStatus::kComplete && text_.substr(end).starts_with(format_.parameter_end)) {
        is_certain = ends_value(end + length) != ScanStatus::kPartial;
        return end;
      }
      if (scan.status == ScanStatus::kPartial && !context_.final) return kNowhere;
    }
    for (std::size_t end = text_.find(format_.parameter_end, end_of_opaque()); end != kNowhere;
         end = text_.find(format_.parameter_end, end + 1)) {
      const ScanStatus status = ends_value(end + length);
      if (status == ScanStatus::kMalformed) continue;
      is_certain = status == ScanStatus::kComplete;
      return end;
    }
    return kNowhere;
  }

  // Whether the next argument or the end of the call begins at `position`; partial where the text ends too early.
  ScanStatus ends_value(std::size_t position) const {
    position = skip_white_space(text_, position);
    if (match_marker(text_, position, followers_) != 0) return ScanStatus::kComplete;
    const bool open = position >= text_.size() || may_become_any(text_, position, followers_);
    return open ? ScanStatus::kPartial : ScanStatus::kMalformed;
  }

  // Holds back a suffix that may belong to a closing tag or, if that is missing, to the call's own end.
  std::size_t held_at_end(std::string_view value) const {
    const std::size_t begun =
        context_.final ? 0 : std::max(held_back(value, value_stops_), held_back(value, {format_.call_end}));
    const std::size_t end = value.rfind(format_.call_end);
    if (end == kNowhere) return begun;
    std::string_view rest = value.substr(end + format_.call_end.size());
    rest.remove_prefix(skip_white_space(rest, 0));
    rest.remove_prefix(match_marker(rest, 0, format_.ends));
    rest.remove_prefix(skip_white_space(rest, 0));
    const bool closes = rest.empty() || (!context_.final && may_become_any(rest, 0, format_.ends));
    return closes ? value.size() - end : begun;
  }

  bool takes_json_only(const Parameter& parameter) const {
    if (parameter.kind == Parameter::Kind::kJson) return true;
    const std::vector<std::string> types = types_of(parameter);
    return parameter.kind == Parameter::Kind::kBySchema && !types.empty() &&
           std::find(types.begin(), types.end(), "string") == types.end();
  }

  std::string arguments_text(const std::vector<Parameter>& read, bool whole) const {
    const bool spaced = context_.spacing == JsonSpacing::kSpaced;
    std::string out = whole || !read.empty() ? "{" : "";
    for (std::size_t i = 0; i < read.size(); ++i) {
      const auto& parameter = read[i];
      const std::vector<std::string> types = types_of(parameter);
      const bool text_value = parameter.kind == Parameter::Kind::kText ||
                              (parameter.kind == Parameter::Kind::kBySchema && is_string_only(types) &&
                               (!types.empty() || find_parameter(tool_, parameter.key) == nullptr));
      if (!parameter.whole && !text_value) break;
      // Before the call ends, a parameter that wraps all arguments looks like one of the same name.
      if (!whole && read.size() == 1 && is_wrapper(parameter)) break;
      if (i != 0) out += spaced ? ", " : ",";
      out += quote_json(parameter.key) + (spaced ? ": " : ":");
      if (!parameter.whole) {
        out += '"';
        append_json_escaped(out, parameter.value);
      } else {
        out += text_value ? quote_json(parameter.value) : typed_value(parameter, types);
      }
    }
    if (!whole) return out;
    if (const auto inner = wrapped_arguments(read)) return *inner;
    return out + "}";
  }

  std::string typed_value(const Parameter& parameter, const std::vector<std::string>& types) const {
    const bool may_be_text = types.empty() || std::find(types.begin(), types.end(), "string") != types.end();
    if (parameter.kind == Parameter::Kind::kJson && may_be_text) return json_value(parameter.value, context_.spacing);
    return coerce_value(parameter.value, types, context_.spacing);
  }

  // The parameter's types in the tool's schema; empty if unknown.
  std::vector<std::string> types_of(const Parameter& parameter) const {
    const ToolParameter* known = find_parameter(tool_, parameter.key);
    return known == nullptr ? std::vector<std::string>() : known->types;
  }

  bool is_wrapper(const Parameter& parameter) const {
    const auto& keys = format_.wrapper_keys;
    return std::find(keys.begin(), keys.end(), parameter.key) != keys.end() && tool_ != nullptr &&
           find_parameter(tool_, parameter.key) == nullptr;
  }

  // Some models wrap all arguments into one parameter, as JSON.
  std::optional<std::string> wrapped_arguments(const std::vector<Parameter>& read) const {
    if (read.size() != 1 || !is_wrapper(read[0])) return std::nullopt;
    const JsonScan scan = scan_json(read[0].value, 0, context_.spacing);
    if (scan.status != ScanStatus::kComplete || scan.text[0] != '{') return std::nullopt;
    return scan.text;
  }

  std::string_view text_;
  const CallContext& context_;
  const ToolFormat& format_;
  std::vector<std::string_view> value_stops_;
  std::vector<std::string_view> followers_;  // tags that may follow a value's closing tag
  const ToolSpec* tool_ = nullptr;
  CallReading reading_;
  std::size_t position_ = 0;
};

}  // namespace

CallReading read_tagged_calls(std::string_view text, const CallContext& context) {
  return TaggedReader(text, context).run();
}

}  // namespace quire
