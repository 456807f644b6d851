// Custom tools of OpenAI's APIs: a call of one is a text, which the model writes as the one argument of a function.
// Pure functions; any thread.
#pragma once

#include <string>

#include "server/api/common/field_reader.h"

namespace quire {

// Description and parameters of the function that stands for a custom tool with these fields (`description`, `format`).
// Errors and warnings stay in the reader.
Json custom_function(FieldReader& tool);

// The text of a custom tool's call as the arguments of its function, and back: arguments of another form are the text.
Json custom_arguments(const std::string& input);
std::string custom_input(const std::string& arguments);

}  // namespace quire
