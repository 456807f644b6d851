// Turns a conversation's typed fields into the engine's input: the prompt's tokens, the grammar, and the reader of the
// answer's text. Every API of conversations uses it: constrain, render, place the reasoning, encode, fit. Pure
// functions; any thread; meant for text threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_reader.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// A conversation ready for the engine.
struct PreparedChat {
  std::vector<TokenId> prompt;
  std::vector<MediaRun> media;
  std::int32_t max_tokens = 0;
  std::shared_ptr<const Grammar> grammar;
  ChatReading reading;
};

// encode_conversation() and fit_chat().
std::optional<PreparedChat> prepare_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields,
                                         ChatPromptFields prompt, const ToolFields& tools,
                                         std::shared_ptr<const TextConstraint> grammar);

// Compiles the conversation's constraints, renders and encodes it, and decides how the answer's text is read;
// max_tokens is left open, and the prompt may be longer than the context. `grammar` is the request's own constraint of
// a final text; null without one. Errors stay in the reader.
std::optional<PreparedChat> encode_conversation(FieldReader& reader, const ServedModel& model, ChatPromptFields prompt,
                                                const ToolFields& tools, std::shared_ptr<const TextConstraint> grammar);

// Cuts the prompt as truncate_prompt_tokens says, checks it against the context and sets max_tokens. False: it does not
// fit; the error, about `param`, is in the reader.
bool fit_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields, const std::string& param,
              PreparedChat& chat);

// Returns whether the model's template, or its format, has a section of reasoning.
bool writes_reasoning(const ServedModel& model);

// Leaves out a conversation's oldest turns, as few as make it fit; the system's message and the last turn stay. `tools`
// and `grammar` are those of the rendering. Errors stay in the reader.
void leave_out_oldest(FieldReader& reader, const ServedModel& model, const GenerationFields& fields,
                      ChatPromptFields& prompt, const ToolFields& tools,
                      const std::shared_ptr<const TextConstraint>& grammar);

}  // namespace quire
