// A conversation fitted to what a model's chat template takes, so that nothing of it is refused by the template or lost
// without a word. Pure functions; any thread. Invariant: the same messages become the same prompt, and a conversation
// that continues another begins with its prompt wherever the template renders turns one after the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/text/chat_template_capabilities.h"

namespace quire {

// A word in a message's text and the pieces that take its place in the rendered prompt.
struct TextInsert {
  std::string mark;
  std::vector<TextPiece> pieces;
};

struct FittedMessages {
  Json messages;
  Json tools;                         // for the template; null: none, or they are explained in a message
  std::vector<std::string> warnings;  // one for each kind of thing that was folded or replaced
  std::vector<TextInsert> inserts;    // calls that the template has no place for, in the model's own form
};

// OpenAI messages in the form the template takes. `tools`: those offered, null where there are none; a template that
// shows none has them explained by a system message. Fails, naming the field, on parts that are not text where the
// template takes strings only.
Result<FittedMessages> fit_messages(const Json& messages, const Json& tools, const TemplateCapabilities& capabilities);

// The rendered prompt with the inserts in their places.
std::vector<TextPiece> with_inserts(std::vector<TextPiece> pieces, const std::vector<TextInsert>& inserts);

// Tools for templates that insist on what a tool may lack: descriptions, parameters and their properties.
Json filled_tools(Json tools);
// And for those that fail on some schemas: properties of one type each, without references, choices and bounds.
Json plain_tools(Json tools);

// Nine letters and digits made from any text; the same ones each time.
std::string nine_letter_id(std::string_view text);

}  // namespace quire
