// tokenize: a template's source as Jinja2's tokens, whitespace control applied. Any thread.
// Invariant: tokens carry the line they start on; the last one is kEnd. Syntax errors are a Failure with their line.
#pragma once

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

}  // namespace quire::jinja
