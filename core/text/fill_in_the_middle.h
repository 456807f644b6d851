// Fill in the middle: the prompt that asks a code model for the text between two others. Any thread; pure. The order is
// prefix, suffix, middle, after other files of the same repository if the model knows such. Sources: Bavarian et al.,
// 2022; Qwen2.5-Coder's technical report (files of a repository).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"

namespace quire {

struct FimTokens {
  TokenId prefix;
  TokenId suffix;
  TokenId middle;
  std::optional<TokenId> repository;
  std::optional<TokenId> file;
  std::vector<TokenId> ends;  // further tokens that such a model ends a filled gap with
};

// Finds them by the names that models use; nothing if one of the first three is missing.
std::optional<FimTokens> find_fim_tokens(const Tokenizer& tokenizer);

struct FimFile {
  std::string name;
  std::string text;
};

struct FimText {
  std::string before;
  std::string after;
  std::vector<FimFile> files;
};

// Returns at most `max_tokens` tokens: the beginning of the text after the gap, a quarter at most; the end of the text
// before it; and in the rest, the end of the files. Control tokens in the texts are plain text. The work is bounded by
// `max_tokens`: of longer texts, only what is kept is read.
std::vector<TokenId> encode_fim(const Tokenizer& tokenizer, const FimTokens& fim, const FimText& text,
                                std::size_t max_tokens);

}  // namespace quire
