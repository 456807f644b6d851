// POST /v1/chat/completions, and the steps that the other conversation APIs share with it. Pure functions; any thread.
#pragma once

#include <memory>

#include "server/api/chat_prompt.h"
#include "server/api/chat_reader.h"
#include "server/api/chat_tools.h"
#include "server/api/generation_fields.h"
#include "server/api/model_table.h"
#include "server/api/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_chat(ModelCall& asked, const Call& call);

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
