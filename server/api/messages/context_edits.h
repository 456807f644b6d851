// context_management of Anthropic's Messages: removes old tool results and old thinking from a conversation. Pure
// functions; any thread; meant for text threads. Invariant: the removal depends on the request alone, so that the next
// turn with the same edits extends this turn's prompt.
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
  std::optional<std::int64_t> keep;  // number of last uses, or of turns with thinking, to keep; absent: all
  std::int64_t clear_at_least = 0;   // tokens; removing fewer is not worth losing the cached prompt
  bool clears_inputs = false;
  std::vector<std::string> excluded;  // tools whose results stay
};

// The field's edits; none where it is absent. Errors stay in the reader.
std::vector<ContextEdit> read_context_edits(FieldReader& reader);

// Applies the edits to the request's conversation, in their order, and returns the answer's member context_management.
// Errors stay in the reader.
Json apply_context_edits(FieldReader& reader, const ServedModel& model, const std::vector<ContextEdit>& edits,
                         MessagesRequest& request);

}  // namespace quire
