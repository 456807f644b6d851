// The models of a tokenizer.json: BPE, Unigram and WordPiece. All functions throw StartupError for a file that Quire
// does not support or that contradicts itself, or nlohmann's exception if a field is missing or of the wrong type. Any
// thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/text_tokenizer.h"

namespace quire {

struct JsonVocabulary {
  std::vector<std::string> texts;  // by id, as written; empty for ids without a token
  std::vector<double> scores;      // by id; Unigram models only
  std::vector<AddedToken> added;
};

// A Unigram model's vocabulary: a list of texts with their scores.
void read_pieces(const nlohmann::json& pieces, JsonVocabulary& vocabulary);

WordModel read_json_model(const nlohmann::json& model, const JsonVocabulary& vocabulary, bool byte_level);

}  // namespace quire
