#include "core/text/tokenizer/read/json_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/base/result.h"
#include "core/text/tokenizer/read/json_components.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

using nlohmann::json;

std::vector<std::pair<std::string, std::string>> read_merges(const json& merges, bool byte_level,
                                                             const std::unordered_set<std::string>& control) {
  std::vector<std::pair<std::string, std::string>> out;
  out.reserve(merges.size());
  for (const json& merge : merges) {
    std::string left;
    std::string right;
    if (merge.is_array()) {
      left = merge.at(0).get<std::string>();
      right = merge.at(1).get<std::string>();
    } else {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    }
    // A client's text must never merge to a control token.
    if (control.count(left + right) != 0) continue;
    auto left_bytes = byte_level ? unicode::bytes_from_alphabet(left) : std::optional(std::move(left));
    auto right_bytes = byte_level ? unicode::bytes_from_alphabet(right) : std::optional(std::move(right));
    if (!left_bytes || !right_bytes || left_bytes->empty() || right_bytes->empty()) {
      throw StartupError(fmt::format("tokenizer.json: merge {} is not two tokens", out.size()));
    }
    out.emplace_back(std::move(*left_bytes), std::move(*right_bytes));
  }
  return out;
}

void refuse_unsupported(const json& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!value_or<std::string>(model, key, "").empty()) {
      throw StartupError(fmt::format("tokenizer.json: model.{} is not supported", key));
    }
  }
  if (value_or(model, "dropout", 0.0) != 0.0) throw StartupError("tokenizer.json: model.dropout is not supported");
}

MergeModel read_bpe(const json& model, const JsonVocabulary& vocabulary, bool byte_level) {
  refuse_unsupported(model);
  MergeOptions options{.byte_level = byte_level,
                       .ignore_merges = value_or(model, "ignore_merges", false),
                       .byte_fallback = value_or(model, "byte_fallback", false),
                       .fuse_unknown = value_or(model, "fuse_unk", false)};
  options.byte_tokens.fill(-1);
  std::vector<std::string> texts = vocabulary.texts;
  std::unordered_set<std::string> control;
  for (const AddedToken& token : vocabulary.added) {
    texts[static_cast<std::size_t>(token.id.value)].clear();
    if (token.special) control.insert(token.content);
  }
  const auto unknown = value_or<std::string>(model, "unk_token", "");
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!unknown.empty() && vocabulary.texts[id] == unknown) options.unknown = static_cast<std::int32_t>(id);
    if (const auto byte = options.byte_fallback ? byte_token_value(texts[id]) : std::nullopt) {
      options.byte_tokens[*byte] = static_cast<std::int32_t>(id);
      texts[id].clear();
    }
    if (byte_level) texts[id] = unicode::bytes_from_alphabet(texts[id]).value_or(std::string());
  }
  if (!unknown.empty() && options.unknown < 0) {
    throw StartupError(fmt::format("tokenizer.json: the unknown token '{}' is not in the vocabulary", unknown));
  }
  return MergeModel(texts, read_merges(model.at("merges"), byte_level, control), options);
}

// Texts that the model spells with: added tokens are found before it.
std::vector<std::string> texts_without_added(const JsonVocabulary& vocabulary) {
  std::vector<std::string> texts = vocabulary.texts;
  for (const AddedToken& token : vocabulary.added)
    texts[static_cast<std::size_t>(token.id.value)].clear();
  return texts;
}

UnigramModel read_unigram(const json& model, const JsonVocabulary& vocabulary) {
  UnigramOptions options{.byte_fallback = value_or(model, "byte_fallback", false)};
  options.byte_tokens.fill(-1);
  const auto unknown = value_or<std::int64_t>(model, "unk_id", -1);
  if (unknown < -1 || unknown >= static_cast<std::int64_t>(vocabulary.scores.size())) {
    throw StartupError(fmt::format("tokenizer.json: the unknown token {} is not in the vocabulary", unknown));
  }
  options.unknown = static_cast<std::int32_t>(unknown);
  const auto lowest = std::min_element(vocabulary.scores.begin(), vocabulary.scores.end());
  options.unknown_score = (lowest == vocabulary.scores.end() ? 0 : *lowest) - kUnknownPenalty;
  std::vector<std::string> texts = texts_without_added(vocabulary);
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (const auto byte = options.byte_fallback ? byte_token_value(texts[id]) : std::nullopt) {
      options.byte_tokens[*byte] = static_cast<std::int32_t>(id);
      texts[id].clear();
    }
  }
  if (unknown >= 0) texts[static_cast<std::size_t>(unknown)].clear();
  std::vector<double> scores = vocabulary.scores;
  scores.resize(texts.size(), 0.0);
  return UnigramModel(texts, std::move(scores), options);
}

WordPieceModel read_word_piece(const json& model, const JsonVocabulary& vocabulary) {
  const auto prefix = value_or<std::string>(model, "continuing_subword_prefix", "##");
  if (prefix.empty()) throw StartupError("tokenizer.json: a WordPiece model without continuing_subword_prefix");
  WordPieceOptions options;
  options.most_characters = value_or<std::size_t>(model, "max_input_chars_per_word", 100);
  const auto unknown = value_or<std::string>(model, "unk_token", "[UNK]");
  std::vector<std::string> starts = texts_without_added(vocabulary);
  std::vector<std::string> continuations(starts.size());
  for (std::size_t id = 0; id < starts.size(); ++id) {
    if (vocabulary.texts[id] == unknown) {
      options.unknown = static_cast<std::int32_t>(id);
      starts[id].clear();
    } else if (starts[id].starts_with(prefix)) {
      continuations[id] = starts[id].substr(prefix.size());
      starts[id].clear();
    }
  }
  if (options.unknown < 0) {
    throw StartupError(fmt::format("tokenizer.json: the unknown token '{}' is not in the vocabulary", unknown));
  }
  return WordPieceModel(starts, continuations, options);
}

// Files without a type have the fields of a single model.
std::string type_of(const json& model) {
  if (model.contains("type")) return model.at("type").get<std::string>();
  if (model.at("vocab").is_array()) return "Unigram";
  return model.contains("merges") ? "BPE" : "WordPiece";
}

}  // namespace

void read_pieces(const json& pieces, JsonVocabulary& vocabulary) {
  for (const json& piece : pieces) {
    vocabulary.texts.push_back(piece.at(0).get<std::string>());
    vocabulary.scores.push_back(piece.at(1).get<double>());
    if (!std::isfinite(vocabulary.scores.back())) {
      throw StartupError(
          fmt::format("tokenizer.json: the score of token {} is not a number", vocabulary.scores.size() - 1));
    }
  }
}

WordModel read_json_model(const json& model, const JsonVocabulary& vocabulary, bool byte_level) {
  const std::string type = type_of(model);
  if (type == "BPE") return read_bpe(model, vocabulary, byte_level);
  if (type == "Unigram" && model.at("vocab").is_array()) return read_unigram(model, vocabulary);
  if (type == "WordPiece") return read_word_piece(model, vocabulary);
  throw StartupError(
      fmt::format("tokenizer.json: the model '{}' is not supported: BPE, Unigram and WordPiece are", type));
}

}  // namespace quire
