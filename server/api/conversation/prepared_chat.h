// From a conversation's typed fields to what the engine computes: its prompt's tokens, its grammar, and how the
// answer's text is read. Chat, messages and responses share it. Pure functions; any thread; meant for text threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_reader.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// A conversation ready for the engine.
struct PreparedChat {
  std::vector<TokenId> prompt;
  std::int32_t max_tokens = 0;
  std::shared_ptr<const Grammar> grammar;
  ChatReading reading;
};

// Renders the conversation, compiles what constrains it, and decides how its text is read; max_tokens is left open, and
// the prompt may be longer than the context. `grammar` is what the request itself demanded; null where it demanded
// nothing. Errors stay in the reader.
std::optional<PreparedChat> encode_conversation(FieldReader& reader, const ServedModel& model, ChatPromptFields prompt,
                                                const ToolFields& tools, std::shared_ptr<const Grammar> grammar);

// The same, cut as truncate_prompt_tokens says and checked against the context.
std::optional<PreparedChat> prepare_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields,
                                         ChatPromptFields prompt, const ToolFields& tools,
                                         std::shared_ptr<const Grammar> grammar);

}  // namespace quire
