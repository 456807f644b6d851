// A conversation that is too long for its model, made to fit. Pure functions; any thread; meant for text threads.
#pragma once

#include <memory>

#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// Leaves out a conversation's oldest turns, as few as make it fit; the system's message and the last turn stay. `tools`
// and `grammar` are those of the rendering. Errors stay in the reader.
void leave_out_oldest(FieldReader& reader, const ServedModel& model, const GenerationFields& fields,
                      ChatPromptFields& prompt, const ToolFields& tools,
                      const std::shared_ptr<const TextConstraint>& grammar);

}  // namespace quire
