// Anthropic's POST /v1/messages as the same typed chat request that OpenAI's chat completions become: its blocks are
// checked and put into the messages that chat templates expect. Pure functions; any thread.
#pragma once

#include <memory>

#include "server/api/common/field_reader.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

struct MessagesRequest {
  GenerationFields fields;
  ChatPromptFields prompt;
  ToolFields tools;
  std::shared_ptr<const TextConstraint> grammar;  // compiled output_config.format; null: text is free
  bool shows_thinking = true;                     // thinking.display is not "omitted"
  Json context_management;                        // answer's report on context edits; null: none asked for
};

// Reads the whole body. `counts_only`: for count_tokens, which needs no max_tokens. Errors stay in the reader.
MessagesRequest read_messages_request(FieldReader& reader, const ServedModel& model, std::shared_ptr<MediaList> media,
                                      bool counts_only);

// Notes, in Anthropic's words, that a member is missing.
void require_field(FieldReader& reader, FieldName name);

// Reads `system` and `messages`. Turns of one role in a row become one; a final assistant message is continued.
// Pictures go to `media`. Errors stay in the reader, named by their path ("messages.2.content.0.type").
ChatPromptFields read_anthropic_prompt(FieldReader& reader, std::shared_ptr<MediaList> media);

}  // namespace quire
