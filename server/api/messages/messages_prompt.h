// A conversation in Anthropic's blocks, checked and put into the messages that chat templates expect. Pure functions;
// any thread.
#pragma once

#include "server/api/common/field_reader.h"
#include "server/api/conversation/chat_prompt.h"

namespace quire {

// Notes, in Anthropic's words, that a member is missing.
void require_field(FieldReader& reader, FieldName name);

// Reads `system` and `messages`. Turns of one role in a row become one; a final assistant message is continued. Errors
// stay in the reader, named by their path ("messages.2.content.0.type").
// Pictures go to `media`.
ChatPromptFields read_anthropic_prompt(FieldReader& reader, std::shared_ptr<MediaList> media);

}  // namespace quire
