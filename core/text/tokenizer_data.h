// What a tokenizer is built from: a vocabulary as GGUF metadata tells it, or the text of a Hugging Face directory's
// files. Value types; any thread. Nothing here is kept by the tokenizer built from it.
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
  std::string_view model;            // tokenizer.ggml.model: "llama" (SentencePiece) or "gpt2" (byte-level BPE)
  std::string_view pre = "default";  // tokenizer.ggml.pre, for gpt2
  std::string_view model_name;       // general.name: Phi-3's control tokens swallow the spaces after them
  std::vector<std::string_view> tokens;
  std::vector<TokenKind> kinds;          // one per token, or none: all normal
  std::vector<float> scores;             // one per token; llama only
  std::vector<std::string_view> merges;  // "left right", best first; gpt2 only
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::vector<TokenId> end_of_generation;  // further ones: eot, eom
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  bool add_space_prefix = true;  // llama only
};

// Throws StartupError: an unknown model or pre-tokenizer, a missing or inconsistent array.
std::shared_ptr<const Tokenizer> make_tokenizer(const VocabularyData& data);

// The contents of the files; all but the first may be empty.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string special_tokens_map_json;
  std::string generation_config_json;  // its eos_token_id
};

// Throws StartupError: not JSON, or a component that Quire does not have, by name.
std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerFiles& files);

}  // namespace quire
