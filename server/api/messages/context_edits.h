// context_management of Anthropic's Messages: old tool results, and old thinking, that are left out of a conversation.
// Pure functions; any thread; meant for text threads. Invariant: what is left out depends on the request alone, so that
// the next turn's prompt begins as this one's where the same edits are asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/messages/messages_request.h"

namespace quire {

struct ContextEdit {
  enum class What { kToolUses, kThinking, kCompaction };
  What what = What::kToolUses;
  std::string type;  // the client's name for the edit
  std::optional<std::int64_t> trigger_tokens;
  std::optional<std::int64_t> trigger_uses;
  std::optional<std::int64_t> keep;  // the last uses, or turns with thinking; absent: all
  std::int64_t clear_at_least = 0;   // tokens; less is not worth a prompt that the cache does not have
  bool clears_inputs = false;
  std::vector<std::string> excluded;  // tools
};

// The field's edits; none where it is absent. Errors stay in the reader.
std::vector<ContextEdit> read_context_edits(FieldReader& reader);

// Leaves out of the request's conversation what the edits say, in their order. What became of it, as the answer's
// member context_management has it. Errors stay in the reader.
Json apply_context_edits(FieldReader& reader, const ServedModel& model, const std::vector<ContextEdit>& edits,
                         MessagesRequest& request);

}  // namespace quire
