#include "server/api/conversation/chat_reader.h"

#include <algorithm>

#include "core/text/message_fit.h"
#include "server/api/common/operation.h"

namespace quire {

ChatReader::ChatReader(const ChatReading& reading) : short_ids_(reading.short_ids), id_tail_(reading.id_tail) {
  if (reading.format == nullptr) return;
  parser_ = std::make_unique<OutputParser>(*reading.format, reading.tools, reading.options);
}

std::vector<OutputDelta> ChatReader::read(std::string_view text, std::size_t num_tokens, bool last) {
  if (parser_ == nullptr) return {OutputDelta{std::string(text), "", {}}};
  if (parser_->in_reasoning()) num_reasoning_tokens_ += static_cast<std::int64_t>(num_tokens);
  std::vector<OutputDelta> deltas = parser_->push(text);
  if (last) {
    std::vector<OutputDelta> rest = parser_->finish();
    std::move(rest.begin(), rest.end(), std::back_inserter(deltas));
  }
  for (OutputDelta& delta : deltas) {
    for (ToolCallDelta& call : delta.tool_calls) {
      num_calls_ = std::max(num_calls_, call.index + 1);
      if (call.name.empty() || !call.id.empty()) continue;
      call.id = id_tail_.empty() ? make_id("call_") : "call_" + id_tail_ + std::to_string(call.index);
      if (short_ids_) call.id = nine_letter_id(call.id);
    }
  }
  if (deltas.empty()) deltas.emplace_back();
  return deltas;
}

}  // namespace quire
