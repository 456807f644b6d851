// What a chat template can take, found by rendering probes through it, and messages fitted to that. Immutable; any
// thread. Probing costs about a dozen small renderings: once per model.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/base/result.h"
#include "core/text/chat_template.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct TemplateCapabilities {
  bool string_content = true;  // a message's content as a string is rendered
  bool parts_content = false;  // as a list of parts
  bool null_content = false;   // as null, beside tool calls, leaves no trace
  bool system_role = false;
  bool developer_role = false;
  bool tools = false;       // `tools` changes the prompt
  bool tool_calls = false;  // an assistant's calls in the history are rendered
  bool tool_results = false;
  bool object_arguments = false;   // a call's arguments must be an object; otherwise JSON text does
  bool reasoning_history = false;  // a message's reasoning_content is rendered
  bool enable_thinking = false;    // the variable changes the prompt
  ToolFormat tool_format;          // what calls and reasoning look like in the output
};

TemplateCapabilities probe_capabilities(const ChatTemplate& chat_template);

// OpenAI messages in the form the template takes: parts joined to strings or strings wrapped into parts, arguments as
// objects or text, null content as "", a developer's message as the system's, and where there is no system role its
// text before the first user message. Fails, naming the field, on parts that are not text where the template takes
// strings only.
Result<nlohmann::ordered_json> fit_messages(const nlohmann::ordered_json& messages,
                                            const TemplateCapabilities& capabilities);

}  // namespace quire
