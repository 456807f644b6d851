// tokenize: a template's source as Jinja2's tokens, whitespace control applied, and the escapes of string literals. Any
// thread. Invariant: tokens carry the line they start on; the last one is kEnd. Syntax errors are a Failure with their
// line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

struct LexerOptions {
  bool trim_blocks = true;
  bool lstrip_blocks = true;
};

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // strings are unescaped, numbers have no underscores
  int line = 1;
};

std::vector<Token> tokenize(std::string_view source, const LexerOptions& options);

// The text of a quoted literal without its quotes; an unknown escape stays as written, as in Python. A malformed \x, \u
// or \U is a Failure at `line`.
std::string unescape_string(std::string_view literal, int line);
// Unescapes text that is not a template's: nothing if an escape is malformed.
std::optional<std::string> try_unescape_string(std::string_view literal);

}  // namespace quire::jinja
