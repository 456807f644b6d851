// Fill in the middle: the prompt by which a code model is asked for what belongs between two texts. Any thread; pure.
// The order is prefix, suffix, middle, behind other files of the same repository where the model knows such.
// Sources: Bavarian et al., 2022; Qwen2.5-Coder's technical report (files of a repository).
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
  std::vector<TokenId> ends;  // what such a model writes once the gap is filled, besides its ends of generation
};

// By the names that models have for them; nothing where one of the first three is missing.
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

// At most `max_tokens` of them: a quarter at most is what comes after the gap, its begin; the end of what comes before
// goes first; the end of the files has what is left. Control tokens in the texts are text. The work is bounded by
// `max_tokens`: of longer texts only the part that is kept is read.
std::vector<TokenId> encode_fim(const Tokenizer& tokenizer, const FimTokens& fim, const FimText& text,
                                std::size_t max_tokens);

}  // namespace quire
