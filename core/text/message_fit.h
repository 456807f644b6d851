// A conversation fitted to the forms that a model's chat template accepts, so that the template refuses none of it and
// drops none silently. Pure functions; any thread. Invariant: the same messages become the same prompt, and a
// conversation that continues another begins with its prompt if the template renders turns one after another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json.h"
#include "core/base/result.h"
#include "core/text/chat_template_capabilities.h"
#include "core/text/tokenizer.h"

namespace quire {

// A word in a message's text and the pieces that take its place in the rendered prompt.
struct TextInsert {
  std::string mark;
  std::vector<TextPiece> pieces;
};

struct FittedMessages {
  Json messages;
  Json tools;                         // tools for the template; null: none, or a message explains them
  std::vector<std::string> warnings;  // a warning for each kind of folded or replaced content
  std::vector<TextInsert> inserts;    // calls that the template cannot render, in the model's own form
};

// OpenAI messages in the form the template takes. `tools`: those offered, null if there are none; if the template shows
// none, a system message explains them. Fails, naming the field, on parts that are not text if the template takes
// strings only.
Result<FittedMessages> fit_messages(const Json& messages, const Json& tools, const TemplateCapabilities& capabilities);

// The rendered prompt with the inserts in their places.
std::vector<TextPiece> with_inserts(std::vector<TextPiece> pieces, const std::vector<TextInsert>& inserts);

// Tools for templates that require fields a tool may lack: descriptions, parameters and their properties.
Json filled_tools(Json tools);
// Tools for templates that fail on some schemas: properties have a single type, and no references, choices and bounds.
Json plain_tools(Json tools);

// Nine letters and digits made from a text; equal texts give equal ids.
std::string nine_letter_id(std::string_view text);

}  // namespace quire
