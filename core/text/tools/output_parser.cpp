#include "core/text/tools/output_parser.h"

#include <utility>

#include "core/text/tools/output_parser_state.h"

namespace quire {

void OutputParser::State::emit_calls(const std::vector<ParsedToolCall>& calls, std::size_t first) {
  if (sent_.size() < first + calls.size()) sent_.resize(first + calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto& call = calls[i];
    Sent& sent = sent_[first + i];
    ToolCallDelta delta;
    delta.index = first + i;
    if (!call.id.empty() && !std::exchange(sent.id, true)) delta.id = call.id;
    if (!std::exchange(sent.name, true)) delta.name = call.name;
    if (call.arguments.size() > sent.num_argument_bytes) {
      delta.arguments = call.arguments.substr(sent.num_argument_bytes);
      sent.num_argument_bytes = call.arguments.size();
    }
    if (delta.id.empty() && delta.name.empty() && delta.arguments.empty()) continue;
    if (deltas_.empty()) deltas_.emplace_back();
    deltas_.back().tool_calls.push_back(std::move(delta));
  }
}

void OutputParser::State::add_content(std::string_view text) {
  if (text.empty()) return;
  if (deltas_.empty() || !deltas_.back().tool_calls.empty()) deltas_.emplace_back();
  deltas_.back().content += text;
}

void OutputParser::State::add_reasoning(std::string_view text) {
  if (text.empty()) return;
  if (deltas_.empty() || !deltas_.back().tool_calls.empty() || !deltas_.back().content.empty()) deltas_.emplace_back();
  deltas_.back().reasoning += text;
}

OutputParser::OutputParser(const ToolFormat& format, std::vector<ToolSpec> tools, OutputParserOptions options)
    : state_(format.syntax == CallSyntax::kHarmony ? make_harmony_state(format, std::move(tools), std::move(options))
                                                   : make_marked_state(format, std::move(tools), std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

std::vector<OutputDelta> OutputParser::push(std::string_view text) {
  return state_->push(text, false);
}
std::vector<OutputDelta> OutputParser::finish() {
  return state_->push({}, true);
}
bool OutputParser::in_reasoning() const {
  return state_->in_reasoning();
}

}  // namespace quire
