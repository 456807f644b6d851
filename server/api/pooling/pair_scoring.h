// PairScoring: the relevance of a document to a query, depending on the model: its classifier's score, how much more
// likely "yes" is than "no", or the similarity of both texts' vectors. It turns pairs into texts for the engine and the
// engine's outputs back into scores. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/common/pooled_operation.h"

namespace quire {

struct PairOptions {
  TextTruncation truncation;                 // limit of the whole text; a pair's document is cut
  std::optional<std::int64_t> max_document;  // tokens of a document that are kept
  std::string instruction;                   // relevance instruction; empty: the model's default
  bool activated = true;                     // scores as probabilities where they come from a classifier
};

class PairScoring {
 public:
  PairScoring(std::shared_ptr<const ServedModel> model, PairOptions options);

  // Errors name the pair's parameters, such as "query" and "documents[2]".
  Result<void> add(const std::string& query, const std::string& query_param, const std::string& document,
                   const std::string& document_param);

  PooledWants wants() const;
  std::vector<PooledText> take_texts() { return std::move(texts_); }
  // Scores of the pairs, in order.
  std::vector<double> scores(const std::vector<std::vector<float>>& outputs) const;

 private:
  enum class Kind { kClassifier, kAnswers, kVectors };
  struct Pair {
    std::size_t first = 0;   // kVectors: index of the query's text
    std::size_t second = 0;  // index of the document's text, or of the pair's
  };

  Result<std::size_t> add_text(PooledText text, const TextTruncation& truncation, const std::string& param);
  Result<std::size_t> add_prompted(const std::string& query, const std::string& document, const std::string& param);
  Result<std::size_t> add_joined(const std::string& query, const std::string& document, const std::string& param);
  Result<std::size_t> vector_of(const std::string& text, std::string_view prompt, const std::string& param);
  Result<std::vector<TokenId>> document_tokens(const std::string& document, const std::string& param) const;
  // The beginning of a document, up to max_document tokens, as text.
  Result<std::string> document_part(const std::string& document, const std::string& param) const;
  Result<std::vector<TokenId>> encoded(std::span<const TextPiece> pieces, bool add_special,
                                       const std::string& param) const;
  Result<std::vector<TokenId>> prompted(const std::string& query, const std::string& document,
                                        const std::string& param) const;
  Result<PooledText> joined(const std::string& query, const std::string& document, const std::string& param) const;

  std::shared_ptr<const ServedModel> model_;
  PairOptions options_;
  Kind kind_;
  std::size_t num_bytes_ = 0;  // bytes of all pairs' texts, encoded pair by pair
  std::vector<PooledText> texts_;
  std::vector<Pair> pairs_;
  std::map<std::pair<std::string, std::string>, std::size_t> known_;  // prompt's name and text: its place, of kVectors
};

}  // namespace quire
