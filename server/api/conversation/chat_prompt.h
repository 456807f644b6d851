// A chat's messages, checked and put into the form that chat templates expect, and the prompt that a template makes of
// them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/common/field_reader.h"
#include "server/api/common/served_model.h"

namespace quire {

class MediaList;

struct ChatPromptFields {
  Json messages = Json::array();     // normalised: content is a string or null, arguments of calls are as they came
  std::shared_ptr<MediaList> media;  // pictures marked in messages; null: none are allowed
  Json tools;                        // null without tools
  Json template_kwargs = Json::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
  std::optional<std::int32_t> thinking_budget;  // tokens of reasoning, after which its end is forced
  bool is_bounded = false;                      // more tokens than the model takes are refused, not counted
  std::string param = "messages";               // the field that errors about the conversation as a whole name
};

// Reads messages, add_generation_prompt, continue_final_message, chat_template_kwargs, reasoning_effort, ... Errors
// stay in the reader, named by their path ("messages[2].content[0].type"). `media`: takes the messages' pictures; null:
// they are refused.
ChatPromptFields read_chat_prompt_fields(FieldReader& reader, std::shared_ptr<MediaList> media = nullptr);

// Reads the fields beside the messages that all conversation APIs share: chat_template_kwargs, enable_thinking, ...
void read_template_fields(FieldReader& reader, ChatPromptFields& fields);

// Requested amount of reasoning, for templates; returns the value of `name`, or nullopt.
std::optional<std::string> read_reasoning_effort(FieldReader& reader, FieldName name, ChatPromptFields& fields);

// The text of a member that holds a message's content: a string, or parts that are all text, joined by line breaks like
// vLLM; pictures become marks of `media`. nullopt if it is absent or invalid: the error stays in the reader.
// `refusals`: allows refusal parts.
std::optional<std::string> read_content(FieldReader& message, const char* member, bool refusals,
                                        MediaList* media = nullptr);

inline constexpr std::size_t kMaxMessages = 16384;

// Renders the template over the messages, fitted to it first, as pieces marked trusted or not. Errors, which stay in
// the reader: the template's own refusals (raise_exception), its limits. Warnings: changes made by the fitting.
std::optional<std::vector<TextPiece>> render_chat(FieldReader& reader, const ServedModel& model,
                                                  const ChatPromptFields& fields);

}  // namespace quire
