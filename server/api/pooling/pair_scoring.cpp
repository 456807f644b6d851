#include "server/api/pooling/pair_scoring.h"

#include <algorithm>
#include <array>

#include "server/api/generation/generation_fields.h"
#include "server/api/generation/prompt_fit.h"
#include "server/api/generation/prompt_list.h"
#include "server/api/pooling/probabilities.h"

namespace quire {

namespace {

// A long query beside many documents is encoded with each of them.
constexpr std::size_t kMaxPairBytes = std::size_t{64} << 20;
constexpr const char* kUsualInstruction = "Given a web search query, retrieve relevant passages that answer the query";

double cosine(std::span<const float> left, std::span<const float> right) {
  double dot = 0.0;
  double left_square = 0.0;
  double right_square = 0.0;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    const auto x = static_cast<double>(left[i]);
    const auto y = static_cast<double>(right[i]);
    dot += x * y;
    left_square += x * x;
    right_square += y * y;
  }
  const double lengths = std::sqrt(left_square * right_square);
  return lengths > 0.0 ? dot / lengths : 0.0;
}

}  // namespace

PairScoring::PairScoring(std::shared_ptr<const ServedModel> model, PairOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  if (options_.instruction.empty()) options_.instruction = kUsualInstruction;
  if (model_->tasks.num_labels > 0) {
    kind_ = Kind::kClassifier;
  } else {
    kind_ = model_->tasks.answers ? Kind::kAnswers : Kind::kVectors;
  }
}

PooledWants PairScoring::wants() const {
  if (kind_ == Kind::kClassifier) return {model_->info.pooling, PooledOutput::kLabels};
  if (kind_ == Kind::kVectors) return {model_->info.pooling, PooledOutput::kUnitVector};
  return {Pooling::kLast, PooledOutput::kTokenLogprobs, {model_->tasks.answers->first, model_->tasks.answers->second}};
}

Result<std::vector<TokenId>> PairScoring::document_tokens(const std::string& document, const std::string& param) const {
  const TextPiece piece{document, false};
  if (!options_.max_document) return encoded({&piece, 1}, false, param);
  auto tokens = encode_prompt({&piece, 1}, false, true, *model_, param);
  if (tokens && std::ssize(*tokens) > *options_.max_document)
    tokens->resize(static_cast<std::size_t>(*options_.max_document));
  return tokens;
}

Result<std::string> PairScoring::document_part(const std::string& document, const std::string& param) const {
  if (!options_.max_document) return document;
  const auto tokens = document_tokens(document, param);
  if (!tokens) return tl::make_unexpected(tokens.error());
  return decoded(*model_->tokenizer, *tokens);
}

Result<std::vector<TokenId>> PairScoring::encoded(std::span<const TextPiece> pieces, bool add_special,
                                                  const std::string& param) const {
  const bool truncated = options_.truncation.keep != TextTruncation::Keep::kAll;
  return encode_prompt(pieces, add_special, truncated, *model_, param);
}

// The model's own text around the pair: the content of the two texts is never read as its control tokens.
Result<std::vector<TokenId>> PairScoring::prompted(const std::string& query, const std::string& document,
                                                   const std::string& param) const {
  const auto kept = document_part(document, param);
  if (!kept) return tl::make_unexpected(kept.error());
  const std::array<std::pair<std::string_view, const std::string*>, 3> places = {
      {{"{query}", &query}, {"{document}", &*kept}, {"{instruction}", &options_.instruction}}};
  std::vector<TextPiece> pieces;
  std::string_view rest = model_->tasks.pair_prompt;
  while (!rest.empty()) {
    std::size_t at = std::string_view::npos;
    const std::pair<std::string_view, const std::string*>* next = nullptr;
    for (const auto& place : places) {
      const std::size_t found = rest.find(place.first);
      if (found >= at) continue;
      at = found;
      next = &place;
    }
    pieces.push_back({std::string(rest.substr(0, at)), true});
    if (next == nullptr) break;
    pieces.push_back({*next->second, false});
    rest.remove_prefix(at + next->first.size());
  }
  return encoded(pieces, false, param);
}

Result<PooledText> PairScoring::joined(const std::string& query, const std::string& document,
                                       const std::string& param) const {
  const PairTokens around = model_->tokenizer->pair_tokens();
  PooledText pair{{around.first.begin(), around.first.end()}};
  std::vector<TokenId>& tokens = pair.tokens;
  const auto append = [&](std::span<const TokenId> more) { tokens.insert(tokens.end(), more.begin(), more.end()); };
  const TextPiece asked{query, false};
  const auto query_tokens = encoded({&asked, 1}, false, param);
  if (!query_tokens) return tl::make_unexpected(query_tokens.error());
  append(*query_tokens);
  append(around.between);
  pair.second_text = std::ssize(tokens);
  auto second = document_tokens(document, param);
  if (!second) return tl::make_unexpected(second.error());
  const std::int64_t room = options_.truncation.limit(*model_) - std::ssize(tokens) - std::ssize(around.last);
  if (std::ssize(*second) > room) second->resize(static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
  append(*second);
  append(around.last);
  return pair;
}

Result<std::size_t> PairScoring::add_text(PooledText text, const TextTruncation& truncation, const std::string& param) {
  auto tokens = fitted(std::move(text.tokens), truncation, *model_, param);
  if (!tokens) return tl::make_unexpected(tokens.error());
  texts_.push_back({*std::move(tokens), text.second_text});
  return texts_.size() - 1;
}

// Equal texts are computed once.
Result<std::size_t> PairScoring::vector_of(const std::string& text, std::string_view prompt, const std::string& param) {
  const auto known = known_.find({std::string(prompt), text});
  if (known != known_.end()) return known->second;
  std::string whole;
  for (const auto& [name, prefix] : model_->tasks.prompts) {
    if (name == prompt) whole = prefix;
  }
  const auto part = prompt == "document" ? document_part(text, param) : Result<std::string>(text);
  if (!part) return tl::make_unexpected(part.error());
  whole += *part;
  const TextPiece piece{std::move(whole), false};
  auto vector_tokens = encoded({&piece, 1}, true, param);
  if (!vector_tokens) return tl::make_unexpected(vector_tokens.error());
  const auto place = add_text({*std::move(vector_tokens)}, options_.truncation, param);
  if (place) known_.emplace(std::pair(std::string(prompt), text), *place);
  return place;
}

Result<std::size_t> PairScoring::add_prompted(const std::string& query, const std::string& document,
                                              const std::string& param) {
  auto tokens = prompted(query, document, param);
  if (!tokens) return tl::make_unexpected(tokens.error());
  return add_text({*std::move(tokens)}, options_.truncation, param);
}

// `document` was cut before.
Result<std::size_t> PairScoring::add_joined(const std::string& query, const std::string& document,
                                            const std::string& param) {
  auto pair = joined(query, document, param);
  if (!pair) return tl::make_unexpected(pair.error());
  return add_text(*std::move(pair), {}, param);
}

Result<void> PairScoring::add(const std::string& query, const std::string& query_param, const std::string& document,
                              const std::string& document_param) {
  if (kind_ != Kind::kVectors) {
    num_bytes_ += query.size() + document.size();
    if (num_bytes_ > kMaxPairBytes) {
      return invalid(
          "The pairs hold more than 64 MiB of text, the query counted with each document: send fewer at once",
          document_param, "request_too_large");
    }
    const bool has_prompt = !model_->tasks.pair_prompt.empty();
    const auto place =
        has_prompt ? add_prompted(query, document, document_param) : add_joined(query, document, document_param);
    if (!place) return tl::make_unexpected(place.error());
    pairs_.push_back({0, *place});
    return {};
  }
  const auto first = vector_of(query, "query", query_param);
  if (!first) return tl::make_unexpected(first.error());
  const auto second = vector_of(document, "document", document_param);
  if (!second) return tl::make_unexpected(second.error());
  pairs_.push_back({*first, *second});
  return {};
}

std::vector<double> PairScoring::scores(const std::vector<std::vector<float>>& outputs) const {
  std::vector<double> scores;
  scores.reserve(pairs_.size());
  for (const Pair& pair : pairs_) {
    const std::vector<float>& output = outputs[pair.second];
    if (kind_ == Kind::kVectors) {
      scores.push_back(cosine(outputs[pair.first], output));
    } else if (options_.activated || kind_ == Kind::kAnswers) {
      scores.push_back(probabilities(output).front());
    } else {
      scores.push_back(static_cast<double>(output.front()));
    }
  }
  return scores;
}

}  // namespace quire
