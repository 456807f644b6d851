// Capabilities of a chat template, found by rendering probes through it. Immutable; any thread. Probing costs some two
// dozen small renderings: once per model.
#pragma once

#include <string_view>

#include "core/base/json/json_fwd.h"
#include "core/text/tools/tool_format.h"

namespace quire {

class ChatTemplate;

// A variable by which a template's reasoning is turned on and off, and its two values as JSON.
struct ThinkingSwitch {
  std::string_view name;
  std::string_view on;
  std::string_view off;
};

struct TemplateCapabilities {
  bool string_content = true;  // a message's content as a string is rendered
  bool parts_content = false;  // content as a list of parts is rendered
  bool null_content = false;   // content null beside tool calls leaves no trace
  bool system_role = false;    // rendered as the first message; so are the other roles
  bool developer_role = false;
  bool several_systems = false;              // two system messages in a row at the beginning
  bool later_system = false;                 // a system message between turns
  bool last_system = false;                  // a system message at the end
  bool repeated_turns = false;               // two messages of a user, or of the assistant, in a row
  bool system_with_results = false;          // a system message while a tool's result is the last message
  bool tools = false;                        // `tools` changes the prompt
  bool tool_calls = false;                   // an assistant's calls in the history are rendered
  bool tool_results = false;                 // a tool's result is rendered after its call
  bool parallel_calls = false;               // several calls of a message are rendered
  bool text_beside_calls = false;            // text of a message with calls is rendered
  bool user_after_result = false;            // a user's message may stand between a result and the next answer
  bool nine_letter_ids = false;              // calls need ids of nine letters and digits
  bool object_arguments = false;             // a call's arguments are rendered as an object; false: as JSON text
  bool reasoning_history = false;            // a message's reasoning_content is rendered
  bool answer_first = false;                 // an answer before the first message of a user is rendered
  bool empty_answers = false;                // an answer without text is rendered
  bool without_user = false;                 // a system message is rendered although no user's message follows
  bool system_with_answer = false;           // a system message is rendered although an answer is the last message
  bool lone_results = false;                 // a result is rendered without a call before it
  const ThinkingSwitch* thinking = nullptr;  // null: no variable turns the reasoning on and off
  ToolFormat tool_format;                    // form of calls and reasoning in the output
};

TemplateCapabilities probe_capabilities(const ChatTemplate& chat_template);

// Adds the variables that templates of this format read in addition to transformers' own.
void add_format_variables(Json& context, const ToolFormat& format);

}  // namespace quire
