// Ollama's requests for text as the typed requests that the other APIs become: `options` are sampling fields, `format`
// is a constraint, a prompt is a conversation of one turn unless it is `raw`. Pure functions; any thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

// Fields that /api/chat and /api/generate share.
struct OllamaRequest {
  GenerationFields fields;
  std::shared_ptr<const ServedModel> model;  // its context is at most options.num_ctx
  ChatPromptFields prompt;                   // no messages: `raw` holds the prompt, or there is none
  ToolFields tools;
  std::shared_ptr<const TextConstraint> grammar;  // compiled `format`; null: text is free
  bool truncates = true;                          // drop the oldest messages of a chat that is too long
  bool loads_only = false;                        // only load the model; generate nothing
  bool logprobs = false;
  std::size_t top_logprobs = 0;
  std::vector<TokenId> context;             // /api/generate: tokens of the conversation so far
  std::optional<std::vector<TokenId>> raw;  // the prompt's tokens if no template is used
};

// Errors stay in the reader.
OllamaRequest read_ollama_chat(FieldReader& reader, std::shared_ptr<const ServedModel> model,
                               std::shared_ptr<MediaList> media);
OllamaRequest read_ollama_generate(FieldReader& reader, std::shared_ptr<const ServedModel> model,
                                   std::shared_ptr<MediaList> media);

// Checks the fields about how long and on which devices a model stays loaded; the operator decides both.
void read_ollama_hints(FieldReader& reader);

// The model with a context of at most options.num_ctx tokens.
std::shared_ptr<const ServedModel> with_num_ctx(FieldReader& options, std::shared_ptr<const ServedModel> model);

// The members of `options`, an empty object where there are none.
const Json& ollama_options(FieldReader& reader);

}  // namespace quire
