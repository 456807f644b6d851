// check_names: that the filters and tests a template uses exist, when it is parsed. Any thread.
// As in Jinja2, a name inside an `if` or a conditional expression is checked only when it is reached.
#pragma once

#include "core/text/jinja/parse/ast.h"

namespace quire::jinja {

// Fails, naming the line, on the first unknown one.
void check_names(const Body& body);

}  // namespace quire::jinja
