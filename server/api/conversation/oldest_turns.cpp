#include "server/api/conversation/oldest_turns.h"

#include <algorithm>
#include <vector>

#include "server/api/conversation/prepared_chat.h"

namespace quire {

void leave_out_oldest(FieldReader& reader, const ServedModel& model, const GenerationFields& fields,
                      ChatPromptFields& prompt, const ToolFields& tools,
                      const std::shared_ptr<const TextConstraint>& grammar) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < prompt.messages.size(); ++i) {
    if (prompt.messages[i]["role"] == "user") turns.push_back(i);
  }
  if (turns.empty()) return;
  const std::int64_t room = model.max_model_len - fields.max_tokens.value_or(1);
  const auto from_turn = [&](std::size_t turn) {
    ChatPromptFields kept = prompt;
    kept.messages.erase(kept.messages.begin() + static_cast<std::ptrdiff_t>(turns.front()),
                        kept.messages.begin() + static_cast<std::ptrdiff_t>(turn));
    kept.is_bounded = true;
    return kept;
  };
  const Json no_fields = Json::object();
  const auto is_too_long = [&](std::size_t turn) {
    FieldReader attempt(no_fields);
    attempt.set_limit(reader.limit());
    const auto encoded = encode_conversation(attempt, model, from_turn(turn), tools, grammar);
    if (encoded) return static_cast<std::int64_t>(encoded->prompt.size()) > room;
    if (attempt.error()->code == "context_length_exceeded") return true;
    take_error(reader, attempt);
    return false;
  };
  const auto first = std::partition_point(turns.begin(), turns.end() - 1, is_too_long);
  prompt = from_turn(*first);
}

}  // namespace quire
