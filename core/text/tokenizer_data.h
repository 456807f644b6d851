// Input of a tokenizer: a vocabulary from GGUF metadata, or the text of a Hugging Face directory's files. Value types;
// any thread. A tokenizer keeps none of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace quire {

// Numbered as tokenizer.ggml.token_type numbers them.
enum class TokenKind : std::uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct VocabularyData {
  // tokenizer.ggml.model: "llama" (SentencePiece's merging), "gpt2" (byte-level BPE), "gemma4" (BPE over characters),
  // "bert" (WordPiece) or "t5" (SentencePiece's unigram model).
  std::string_view model;
  std::string_view pre = "default";  // tokenizer.ggml.pre, for gpt2
  std::string_view model_name;       // general.name: Phi-3's control tokens swallow the spaces after them
  std::vector<std::string_view> tokens;
  std::vector<TokenKind> kinds;          // per token; empty: all normal
  std::vector<float> scores;             // per token; llama and t5 only
  std::vector<std::string_view> merges;  // "left right", best first; gpt2 and gemma4 only
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::optional<TokenId> separator;
  std::vector<TokenId> end_of_generation;  // further ones: eot, eom
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_separator;     // between the texts of a pair
  std::optional<bool> add_space_prefix;  // default: yes for llama, no for t5
  bool collapse_spaces = false;          // t5 only
  std::string character_map;             // precompiled_charsmap; t5 only
  bool lowercase = true;                 // bert only
  std::optional<bool> strip_accents;     // bert only; default: `lowercase`
  std::vector<TokenId> suppressed;       // tokens never generated
};

// Throws StartupError: an unknown model or pre-tokenizer, a missing or inconsistent array.
std::shared_ptr<const Tokenizer> make_tokenizer(const VocabularyData& data);

// The contents of the files; all but the first may be empty.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string special_tokens_map_json;
  std::string generation_config_json;  // its eos_token_id
  std::string config_json;             // its eos_token_id, if generation_config.json has none
};

// Throws StartupError for files that are not JSON, or for a component that Quire does not support, by name.
std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerFiles& files);

}  // namespace quire
