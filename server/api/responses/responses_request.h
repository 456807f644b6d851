// Reads OpenAI's Responses request into the same typed chat request as chat completions, with the fields that its
// response repeats. Pure functions except for the store; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/api/common/operation.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/chat_tools.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/responses/response_tools.h"
#include "server/api/responses/responses_input.h"

namespace quire {

inline constexpr std::string_view kResponseIdPrefix = "resp_";

struct ResponsesRequest {
  GenerationFields fields;
  ChatPromptFields prompt;
  ToolFields tools;
  ResponseTools tool_table;                       // the offered tools by their names in the prompt
  std::shared_ptr<const TextConstraint> grammar;  // compiled text.format or similar; null: text is free
  ResponseInput input;
  Json conversation_items = Json::array();  // the whole conversation, the input last
  std::string previous_response_id;
  std::string conversation;         // id of its conversation; empty: none
  Json echo = Json::object();       // the members of the response that repeat the request, in the response's order
  std::int64_t num_echo_bytes = 0;  // size of `echo` as text
  bool store = true;                // store the response
  bool generates = true;            // false: its conversation is kept for the next message, and nothing is computed
  bool background = false;          // runs even if its client disconnects
  bool compacts = false;            // the answer is a summary of the conversation
  std::optional<std::int64_t> compact_threshold;  // tokens; a longer input would have to be compacted first
  bool truncates = false;                         // drop the oldest items of a conversation that is too long
  bool logprobs = false;
  bool summarises = false;         // reasoning is returned as its own summary
  bool returns_reasoning = false;  // returns encrypted_content, to be sent again later
};

// Reads the whole body. Errors stay in the reader.
ResponsesRequest read_responses_request(FieldReader& reader, const ServedModel& model, const Call& call);

}  // namespace quire
