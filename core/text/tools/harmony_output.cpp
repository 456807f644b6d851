// gpt-oss's channels: <|channel|>analysis<|message|>..., a recipient after "to=" makes a message a call.
#include <algorithm>

#include "core/text/tools/output_parser_state.h"

namespace quire {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
const std::vector<std::string_view> kMessageEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

class HarmonyState final : public OutputParser::State {
 public:
  using State::State;
  bool in_reasoning() const override { return !in_header_ && kind_ == Kind::kReasoning; }

 private:
  enum class Kind { kContent, kReasoning, kCall, kIgnored };

  void process(bool final) override {
    while (in_header_ ? step_header(final) : step_body(final)) {
    }
  }

  // A header: [assistant] [to=NAME] <|channel|>CHANNEL [to=NAME] [<|constrain|>json] <|message|>.
  bool step_header(bool final) {
    const std::size_t end = pending_.find(kMessage);
    if (end == kNowhere) {
      if (final && !looks_like_header()) add_content(std::exchange(pending_, {}));
      if (final) pending_.clear();
      return false;
    }
    const std::string header = pending_.substr(0, end);
    pending_.erase(0, end + kMessage.size());
    in_header_ = false;
    const std::size_t channel_at = header.rfind(kChannel);
    const std::string channel = channel_at == kNowhere ? "" : header.substr(channel_at + kChannel.size());
    const std::string recipient = recipient_of(header);
    kind_ = channel.starts_with("analysis") ? Kind::kReasoning : Kind::kContent;
    constexpr std::string_view kFunctions = "functions.";
    if (recipient.starts_with(kFunctions) && options_.parse_tools) {
      kind_ = Kind::kCall;
      calls_.push_back({"", recipient.substr(kFunctions.size()), ""});
      if (options_.eager) emit_calls(calls_, 0);
    } else if (!recipient.empty() && recipient != "assistant") {
      kind_ = Kind::kIgnored;
    }
    if (kind_ == Kind::kReasoning && !options_.parse_reasoning)
      add_content(std::string(kChannel) + "analysis" + std::string(kMessage));
    return true;
  }

  bool looks_like_header() const {
    const auto text = std::string_view(pending_);
    return text.find("<|") != kNowhere || text.starts_with(" to=") || text.starts_with("to=") ||
           may_become(text, 0, "<|channel|>");
  }

  static std::string recipient_of(const std::string& header) {
    const std::size_t at = header.rfind("to=");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + 3;
    const std::size_t end = std::min(header.find_first_of(" <", begin), header.size());
    return header.substr(begin, end - begin);
  }

  bool step_body(bool final) {
    std::size_t end = kNowhere;
    std::size_t length = 0;
    for (const auto marker : kMessageEnds) {
      const std::size_t found = pending_.find(marker);
      if (found < end) {
        end = found;
        length = marker.size();
      }
    }
    const std::size_t held = final || end != kNowhere ? 0 : held_back(pending_, kMessageEnds);
    const std::size_t count = end != kNowhere ? end : pending_.size() - held;
    emit_body(std::string_view(pending_).substr(0, count));
    pending_.erase(0, count);
    if (end == kNowhere) {
      if (final && kind_ == Kind::kCall && !options_.eager) finish_last_call();
      return false;
    }
    if (kind_ == Kind::kCall) finish_call();
    if (kind_ == Kind::kReasoning && !options_.parse_reasoning) add_content("<|end|>");
    pending_.erase(0, length);
    in_header_ = true;
    return true;
  }

  void emit_body(std::string_view text) {
    if (kind_ == Kind::kContent) add_content(text);
    if (kind_ == Kind::kReasoning) options_.parse_reasoning ? add_reasoning(text) : add_content(text);
    if (kind_ == Kind::kCall) {
      calls_.back().arguments += text;
      if (options_.eager) emit_calls(calls_, 0);
    }
  }

  void finish_call() {
    if (calls_.back().arguments.empty()) calls_.back().arguments = "{}";
    emit_calls(calls_, 0);
  }

  // The generation ended with the call's end, which is no part of the text, or it was cut off.
  void finish_last_call() {
    const std::string& arguments = calls_.back().arguments;
    const bool whole = scan_json(arguments, 0, JsonSpacing::kSpaced).status == ScanStatus::kComplete;
    if (whole || !options_.exact) return finish_call();
    add_content(arguments);
    calls_.pop_back();
  }

  bool in_header_ = true;
  Kind kind_ = Kind::kContent;
  std::vector<ParsedToolCall> calls_;
};

}  // namespace

std::unique_ptr<OutputParser::State> make_harmony_state(const ToolFormat& format, std::vector<ToolSpec> tools,
                                                        OutputParserOptions options) {
  return std::make_unique<HarmonyState>(format, std::move(tools), std::move(options));
}

}  // namespace quire
