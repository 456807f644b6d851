// The components of a tokenizer.json, each read from its JSON object. All functions throw StartupError naming what
// Quire does not support, or nlohmann's exception if a field is missing or of the wrong type. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer/normalizer.h"
#include "core/text/tokenizer/pre_tokenizer.h"
#include "core/text/tokenizer/text_tokenizer.h"

namespace quire {

// Throws StartupError if it is no integer or exceeds any real vocabulary, since a file's ids decide how much is
// allocated.
TokenId read_token_id(const nlohmann::json& id);

struct JsonNormalizer {
  Normalizer normalizer;
  bool byte_level = false;
};
JsonNormalizer read_normalizer(const nlohmann::json& object);  // null: none

struct JsonPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;
};
// `in_alphabet`: the normalizer has written the text in GPT-2's byte alphabet already.
JsonPreTokenizer read_pre_tokenizer(const nlohmann::json& object, bool in_alphabet = false);

struct JsonDecoder {
  bool byte_level = false;
  bool byte_fallback = false;
  bool strips_leading_space = false;
  std::string continuing_prefix;  // WordPiece: a token without it begins a word
  std::vector<std::pair<std::string, std::string>> replacements;
};
JsonDecoder read_decoder(const nlohmann::json& object);

SurroundingTokens read_post_processor(const nlohmann::json& object);

// A field that may be absent or null, which mean the same. Throws nlohmann's exception if it has another type.
template <class T>
T value_or(const nlohmann::json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->get<T>();
}

}  // namespace quire
