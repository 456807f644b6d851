#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/base/result.h"
#include "core/text/tokenizer/text_tokenizer.h"
#include "core/text/tokenizer_data.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

constexpr std::string_view kSpaceMark = "▁";
// Longer than any published token by far; what is merged from scores takes time quadratic in it.
constexpr std::size_t kMostTokenBytes = 4096;

TokenKind kind_of(const VocabularyData& data, std::size_t id) {
  const TokenKind kind = data.kinds.empty() ? TokenKind::kNormal : data.kinds[id];
  // Some published files leave these as plain text, which would let anybody write them.
  return is_end_of_generation_text(data.tokens[id]) ? TokenKind::kControl : kind;
}

bool is_special_kind(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

void check_id(const VocabularyData& data, std::optional<TokenId> id, std::string_view what) {
  if (id && (id->value < 0 || static_cast<std::size_t>(id->value) >= data.tokens.size())) {
    throw StartupError(
        fmt::format("the {} token's id {} is not in the vocabulary of {} tokens", what, id->value, data.tokens.size()));
  }
}

void check(const VocabularyData& data) {
  if (data.tokens.empty()) throw StartupError("the vocabulary is empty (tokenizer.ggml.tokens)");
  const auto fits = [&](std::size_t count, std::string_view key) {
    if (count != 0 && count != data.tokens.size()) {
      throw StartupError(fmt::format("{} has {} entries for {} tokens", key, count, data.tokens.size()));
    }
  };
  fits(data.kinds.size(), "tokenizer.ggml.token_type");
  fits(data.scores.size(), "tokenizer.ggml.scores");
  check_id(data, data.bos, "bos");
  check_id(data, data.eos, "eos");
  check_id(data, data.unknown, "unknown");
  for (const TokenId id : data.end_of_generation)
    check_id(data, id, "end of turn");
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].size() > kMostTokenBytes) {
      throw StartupError(
          fmt::format("token {} is {} bytes long; at most {} are taken", id, data.tokens[id].size(), kMostTokenBytes));
    }
  }
}

AddedTokens added_tokens(const VocabularyData& data) {
  const std::string lower = unicode::is_valid(data.model_name) ? unicode::lowercase(data.model_name) : std::string();
  const bool phi3 = lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenKind kind = kind_of(data, id);
    const std::string_view text = data.tokens[id];
    if (!is_special_kind(kind) && kind != TokenKind::kUserDefined) continue;
    // Texts are valid UTF-8: what is not occurs in none, and half a character must not be cut out of one.
    if (text.empty() || !unicode::is_valid(text)) continue;
    const bool keeps_space = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
    added.push_back({.content = std::string(text),
                     .id = TokenId{static_cast<std::int32_t>(id)},
                     .special = is_special_kind(kind),
                     .rstrip = phi3 && !keeps_space});
  }
  return AddedTokens(std::move(added));
}

// What both kinds of vocabulary share.
TextTokenizerParts common_parts(const VocabularyData& data, bool add_bos_default) {
  TextTokenizerParts parts;
  parts.added = added_tokens(data);
  parts.names.reserve(data.tokens.size());
  parts.special.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    parts.names.insert(data.tokens[id], static_cast<std::int32_t>(id));
    parts.special[id] = is_special_kind(kind_of(data, id));
  }
  parts.bos = data.bos;
  if (data.add_bos.value_or(add_bos_default) && data.bos) parts.prefix.push_back(*data.bos);
  if (data.add_eos.value_or(false) && data.eos) parts.suffix.push_back(*data.eos);
  auto& ends = parts.end_of_generation;
  if (data.eos) ends.push_back(*data.eos);
  ends.insert(ends.end(), data.end_of_generation.begin(), data.end_of_generation.end());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (is_end_of_generation_text(data.tokens[id])) ends.push_back(TokenId{static_cast<std::int32_t>(id)});
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return parts;
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kSpaceMark);
    out += mark ? ' ' : text[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return out;
}

std::shared_ptr<const Tokenizer> make_sentencepiece(const VocabularyData& data) {
  if (data.scores.empty()) throw StartupError("a 'llama' vocabulary needs tokenizer.ggml.scores");
  if (std::any_of(data.scores.begin(), data.scores.end(), [](float score) { return std::isnan(score); })) {
    throw StartupError("tokenizer.ggml.scores holds a value that is not a number");
  }
  TextTokenizerParts parts = common_parts(data, true);
  MergeOptions options{.byte_fallback = true, .fuse_unknown = true};
  options.unknown = data.unknown ? data.unknown->value : -1;
  options.byte_tokens.fill(-1);
  std::vector<std::string> texts(data.tokens.size());
  parts.bytes.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view text = data.tokens[id];
    const TokenKind kind = kind_of(data, id);
    const auto byte = kind == TokenKind::kByte ? byte_token_value(text) : std::nullopt;
    if (byte) {
      options.byte_tokens[*byte] = static_cast<std::int32_t>(id);
      parts.bytes[id] = static_cast<char>(*byte);
      continue;
    }
    parts.bytes[id] = is_special_kind(kind) ? std::string(text) : with_spaces(text);
    if ((kind == TokenKind::kNormal || kind == TokenKind::kUnused) && unicode::is_valid(text)) texts[id] = text;
  }
  parts.model = MergeModel::from_scores(texts, data.scores, options);
  if (data.add_space_prefix) parts.normalizer.add(Normalizer::Prepend{std::string(kSpaceMark)});
  parts.normalizer.add(Normalizer::ReplaceCharacter{' ', std::string(kSpaceMark)});
  parts.strips_leading_space = data.add_space_prefix;
  return std::make_shared<TextTokenizer>(std::move(parts));
}

// The merges as bytes, without those that would make a control token out of what somebody wrote.
std::vector<std::pair<std::string, std::string>> byte_merges(const VocabularyData& data) {
  std::unordered_set<std::string_view> control;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (is_special_kind(kind_of(data, id))) control.insert(data.tokens[id]);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(data.merges.size());
  for (const std::string_view merge : data.merges) {
    const std::size_t space = merge.find(' ', 1);
    auto left = unicode::bytes_from_alphabet(merge.substr(0, space));
    auto right = space == std::string_view::npos ? std::nullopt : unicode::bytes_from_alphabet(merge.substr(space + 1));
    if (!left || !right || left->empty() || right->empty()) {
      throw StartupError(fmt::format("merge {} is not two byte-level tokens (tokenizer.ggml.merges)", merges.size()));
    }
    if (control.count(*left + *right) != 0) continue;
    merges.emplace_back(std::move(*left), std::move(*right));
  }
  return merges;
}

std::shared_ptr<const Tokenizer> make_byte_level(const VocabularyData& data) {
  if (data.merges.empty()) throw StartupError("a 'gpt2' vocabulary needs tokenizer.ggml.merges");
  NamedPreTokenizer named = make_pre_tokenizer(data.pre);
  TextTokenizerParts parts = common_parts(data, named.add_bos);
  MergeOptions options{.byte_level = true, .ignore_merges = named.ignore_merges};
  options.unknown = data.unknown ? data.unknown->value : -1;
  std::vector<std::string> texts(data.tokens.size());
  parts.bytes.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view text = data.tokens[id];
    const TokenKind kind = kind_of(data, id);
    const bool plain = kind != TokenKind::kUserDefined && !is_special_kind(kind);
    auto bytes = plain ? unicode::bytes_from_alphabet(text) : std::nullopt;
    if (bytes) texts[id] = *bytes;
    parts.bytes[id] = bytes ? std::move(*bytes) : std::string(text);
  }
  parts.model.emplace(texts, byte_merges(data), options);
  parts.pre_tokenizer = std::move(named.pre_tokenizer);
  if (named.nfc) parts.normalizer.add(Normalizer::Normalize{unicode::Form::kNfc});
  return std::make_shared<TextTokenizer>(std::move(parts));
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(const VocabularyData& data) {
  if (data.model != "llama" && data.model != "gpt2") {
    throw StartupError(fmt::format(
        "the tokenizer model '{}' (tokenizer.ggml.model) is not supported: llama and gpt2 are", data.model));
  }
  check(data);
  return data.model == "llama" ? make_sentencepiece(data) : make_byte_level(data);
}

}  // namespace quire
