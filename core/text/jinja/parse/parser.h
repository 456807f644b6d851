// parse_template: a template's source to its statements, by Jinja2's grammar. Any thread.
// Invariants: see ast.h; every error is a Failure that names its line.
#pragma once

#include <string_view>

#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/parse/lexer.h"

namespace quire::jinja {

Body parse_template(std::string_view source, const LexerOptions& options);

}  // namespace quire::jinja
