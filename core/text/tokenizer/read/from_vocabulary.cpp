#include "core/text/tokenizer/read/vocabulary_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/base/result.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

// Far longer than any published token; merging by scores takes time quadratic in the length.
constexpr std::size_t kMostTokenBytes = 4096;

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
  check_id(data, data.separator, "separator");
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
    // Only valid UTF-8 can occur in a text, and half a character must not be cut out of one.
    if (text.empty() || !unicode::is_valid(text)) continue;
    const bool keeps_space = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
    added.push_back({.content = std::string(text),
                     .id = TokenId{static_cast<std::int32_t>(id)},
                     .special = is_special_kind(kind),
                     .rstrip = phi3 && !keeps_space});
  }
  return AddedTokens(std::move(added));
}

}  // namespace

TokenKind kind_of(const VocabularyData& data, std::size_t id) {
  const TokenKind kind = data.kinds.empty() ? TokenKind::kNormal : data.kinds[id];
  // Some published files leave these as plain text, which would let a client write them.
  return is_end_of_generation_text(data.tokens[id]) ? TokenKind::kControl : kind;
}

bool is_special_kind(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

TextTokenizerParts common_parts(const VocabularyData& data, const SpecialDefaults& defaults) {
  TextTokenizerParts parts;
  parts.added = added_tokens(data);
  parts.names.reserve(data.tokens.size());
  parts.special.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    parts.names.insert(data.tokens[id], static_cast<std::int32_t>(id));
    parts.special[id] = is_special_kind(kind_of(data, id));
  }
  parts.bos = data.bos;
  SurroundingTokens& around = parts.around;
  const bool adds_eos = data.add_eos.value_or(defaults.add_eos) && data.eos;
  if (data.add_bos.value_or(defaults.add_bos) && data.bos) around.prefix.push_back(*data.bos);
  if (adds_eos) around.suffix.push_back(*data.eos);
  around.pair_first = around.prefix;
  around.pair_between = around.suffix;
  if (data.add_separator.value_or(defaults.add_separator) && data.separator)
    around.pair_between.push_back(*data.separator);
  around.pair_last = around.suffix;
  for (const TokenId id : data.suppressed) {
    if (id.value >= 0 && static_cast<std::size_t>(id.value) < data.tokens.size()) parts.suppressed.push_back(id);
  }
  auto& ends = parts.end_of_generation;
  ends = ends_by_text(parts.names);
  ends.insert(ends.end(), data.end_of_generation.begin(), data.end_of_generation.end());
  put_in_order(ends, data.eos);
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

void check_scores(const VocabularyData& data) {
  if (data.scores.empty()) throw StartupError(fmt::format("a '{}' vocabulary needs tokenizer.ggml.scores", data.model));
  if (std::any_of(data.scores.begin(), data.scores.end(), [](float score) { return std::isnan(score); })) {
    throw StartupError("tokenizer.ggml.scores holds a value that is not a number");
  }
}

std::vector<std::string> read_texts(const VocabularyData& data, TextTokenizerParts& parts,
                                    std::array<std::int32_t, 256>& byte_tokens) {
  byte_tokens.fill(-1);
  std::vector<std::string> texts(data.tokens.size());
  parts.bytes.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view text = data.tokens[id];
    const TokenKind kind = kind_of(data, id);
    const auto byte = kind == TokenKind::kByte ? byte_token_value(text) : std::nullopt;
    if (byte) {
      byte_tokens[*byte] = static_cast<std::int32_t>(id);
      parts.bytes[id] = static_cast<char>(*byte);
      continue;
    }
    parts.bytes[id] = is_special_kind(kind) ? std::string(text) : with_spaces(text);
    if ((kind == TokenKind::kNormal || kind == TokenKind::kUnused) && unicode::is_valid(text)) texts[id] = text;
  }
  return texts;
}

namespace {

std::shared_ptr<const Tokenizer> make_sentencepiece(const VocabularyData& data) {
  check_scores(data);
  TextTokenizerParts parts = common_parts(data, {.add_bos = true});
  MergeOptions options{.byte_fallback = true, .fuse_unknown = true};
  options.unknown = data.unknown ? data.unknown->value : -1;
  const std::vector<std::string> texts = read_texts(data, parts, options.byte_tokens);
  parts.model = MergeModel::from_scores(texts, data.scores, options);
  const bool prefix = data.add_space_prefix.value_or(true);
  if (prefix) parts.normalizer.add(Normalizer::Prepend{std::string(kSpaceMark)});
  parts.normalizer.add(Normalizer::ReplaceCharacter{' ', std::string(kSpaceMark)});
  parts.strips_leading_space = prefix;
  return std::make_shared<TextTokenizer>(std::move(parts));
}

// The merges, as bytes or as written, without those that would make a control token out of a client's
// text.
std::vector<std::pair<std::string, std::string>> read_merges(const VocabularyData& data, bool byte_level) {
  std::unordered_set<std::string_view> control;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (is_special_kind(kind_of(data, id))) control.insert(data.tokens[id]);
  }
  const auto side = [&](std::string_view text) {
    if (byte_level) return unicode::bytes_from_alphabet(text);
    return unicode::is_valid(text) ? std::optional<std::string>(text) : std::nullopt;
  };
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(data.merges.size());
  for (const std::string_view merge : data.merges) {
    const std::size_t space = merge.find(' ', 1);
    auto left = side(merge.substr(0, space));
    auto right = space == std::string_view::npos ? std::nullopt : side(merge.substr(space + 1));
    if (!left || !right || left->empty() || right->empty()) {
      throw StartupError(fmt::format("merge {} is not two {}tokens (tokenizer.ggml.merges)", merges.size(),
                                     byte_level ? "byte-level " : ""));
    }
    if (control.count(*left + *right) != 0) continue;
    merges.emplace_back(std::move(*left), std::move(*right));
  }
  return merges;
}

std::shared_ptr<const Tokenizer> make_byte_level(const VocabularyData& data) {
  if (data.merges.empty()) throw StartupError("a 'gpt2' vocabulary needs tokenizer.ggml.merges");
  NamedPreTokenizer named = make_pre_tokenizer(data.pre);
  TextTokenizerParts parts = common_parts(data, {.add_bos = named.add_bos, .add_separator = named.add_separator});
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
  parts.model = MergeModel(texts, read_merges(data, true), options);
  parts.pre_tokenizer = std::move(named.pre_tokenizer);
  if (named.nfc) parts.normalizer.add(Normalizer::Normalize{unicode::Form::kNfc});
  return std::make_shared<TextTokenizer>(std::move(parts));
}

// BPE over characters: spaces are marks, only line breaks cut, and characters without a token become bytes' tokens.
std::shared_ptr<const Tokenizer> make_character_bpe(const VocabularyData& data) {
  if (data.merges.empty()) {
    throw StartupError(fmt::format("a '{}' vocabulary needs tokenizer.ggml.merges", data.model));
  }
  TextTokenizerParts parts = common_parts(data, {.add_bos = true});
  // Gemma 4 files that disable it were converted wrongly: the model needs it.
  const bool is_gemma = data.pre != "sarvam-moe";
  if (is_gemma && data.bos && parts.around.prefix.empty()) {
    parts.around.prefix = {*data.bos};
    parts.around.pair_first = {*data.bos};
  }
  MergeOptions options{.whole_lines = is_gemma, .byte_fallback = true, .fuse_unknown = true};
  options.unknown = data.unknown ? data.unknown->value : -1;
  const std::vector<std::string> texts = read_texts(data, parts, options.byte_tokens);
  parts.model = MergeModel(texts, read_merges(data, false), options);
  parts.normalizer.add(Normalizer::ReplaceCharacter{' ', std::string(kSpaceMark)});
  parts.pre_tokenizer.add(PreTokenizer::Split{Regex::compile("\\n+")});
  return std::make_shared<TextTokenizer>(std::move(parts));
}

bool is_character_bpe(const VocabularyData& data) {
  return data.model == "gemma4" || (data.model == "gpt2" && (data.pre == "gemma4" || data.pre == "sarvam-moe" ||
                                                             data.pre == "granite-embed-multi-311m"));
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(const VocabularyData& data) {
  constexpr std::array<std::string_view, 5> kModels = {"llama", "gpt2", "gemma4", "bert", "t5"};
  if (std::find(kModels.begin(), kModels.end(), data.model) == kModels.end()) {
    throw StartupError(
        fmt::format("the tokenizer model '{}' (tokenizer.ggml.model) is not supported: llama, gpt2, gemma4, bert and "
                    "t5 are",
                    data.model));
  }
  check(data);
  if (is_character_bpe(data)) return make_character_bpe(data);
  if (data.model == "llama") return make_sentencepiece(data);
  if (data.model == "bert") return make_word_piece(data);
  return data.model == "t5" ? make_unigram(data) : make_byte_level(data);
}

}  // namespace quire
