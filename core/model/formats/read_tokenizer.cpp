#include "core/model/formats/read_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/hf/json_file.h"
#include "core/text/tokenizer_data.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const GgufFile& file, const std::string& what) {
  throw StartupError(fmt::format("{}: {}", file.where(), what));
}

// A list of numbers as T; empty if the key is absent.
template <class T>
std::vector<T> numbers(const GgufFile& file, std::string_view key) {
  std::vector<T> out;
  const GgufValue* value = file.find(key);
  if (value == nullptr) return out;
  const auto take = [&](const auto& list) {
    using List = std::decay_t<decltype(list)>;
    if constexpr (std::is_same_v<List, std::vector<std::uint64_t>> || std::is_same_v<List, std::vector<std::int64_t>> ||
                  std::is_same_v<List, std::vector<double>>) {
      out.reserve(list.size());
      // Fractions are accepted only if T is a real type.
      for (const auto number : list) {
        if (std::is_integral_v<T> && !integer_of(number)) return false;
        out.push_back(static_cast<T>(number));
      }
      return true;
    }
    return false;
  };
  if (!std::visit(take, *value))
    refuse(file, fmt::format("the metadata key '{}' is {}, not a list of {}numbers", key, described(*value),
                             std::is_integral_v<T> ? "whole " : ""));
  return out;
}

std::optional<TokenId> token_id(const GgufFile& file, std::string_view key, std::int64_t number) {
  // Converters write 2^32 - 1, or -1, for "none".
  if (number == -1 || number == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  if (!std::in_range<std::int32_t>(number) || number < 0)
    refuse(file, fmt::format("the metadata key '{}' is {}, which is no token", key, number));
  return TokenId{static_cast<std::int32_t>(number)};
}

// The tokens of a key with an id or a list of ids.
std::vector<TokenId> token_ids(const GgufFile& file, std::string_view key) {
  std::vector<TokenId> out;
  const GgufValue* value = file.find(key);
  if (value == nullptr) return out;
  const bool is_one = !is_list(*value) || integer_of(*value);
  for (const std::int64_t number : is_one ? std::vector{*file.get_int(key)} : numbers<std::int64_t>(file, key)) {
    if (const auto id = token_id(file, key, number)) out.push_back(*id);
  }
  return out;
}

std::optional<TokenId> token_id(const GgufFile& file, std::string_view key) {
  const auto number = file.get_int(key);
  return number ? token_id(file, key, *number) : std::nullopt;
}

std::vector<TokenKind> kinds(const GgufFile& file) {
  std::vector<TokenKind> out;
  for (const std::int64_t number : numbers<std::int64_t>(file, "tokenizer.ggml.token_type")) {
    if (number < 0 || number > static_cast<std::int64_t>(TokenKind::kByte))
      refuse(file, fmt::format("tokenizer.ggml.token_type holds the unknown kind {}", number));
    out.push_back(number == 0 ? TokenKind::kNormal : static_cast<TokenKind>(number));
  }
  return out;
}

// Most bytes of a file's names and patterns that a message shows.
constexpr std::size_t kMostShown = 1500;

// Adds the file's place to errors.
template <class Make>
std::shared_ptr<const Tokenizer> located(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const StartupError& error) {
    throw StartupError(fmt::format("{}: {}", where, printable(error.what(), kMostShown)));
  }
}

VocabularyData read_vocabulary(const GgufFile& file) {
  const auto model = file.get_string("tokenizer.ggml.model");
  const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!model || tokens == nullptr) refuse(file, "the file has no tokenizer (tokenizer.ggml.model and .tokens)");
  VocabularyData data;
  data.model = *model;
  data.tokens = *tokens;
  if (const auto pre = file.get_string("tokenizer.ggml.pre")) {
    data.pre = *pre;
  } else if (data.model == "gpt2") {
    log::warn("the file names no pre-tokenizer (tokenizer.ggml.pre): 'default' is used, its tokens may be wrong");
  }
  data.model_name = file.get_string("general.name").value_or("");
  data.kinds = kinds(file);
  data.scores = numbers<float>(file, "tokenizer.ggml.scores");
  if (const auto* merges = file.get_strings("tokenizer.ggml.merges")) data.merges = *merges;
  data.bos = token_id(file, "tokenizer.ggml.bos_token_id");
  // The first of several end tokens is put after a text.
  data.end_of_generation = token_ids(file, "tokenizer.ggml.eos_token_id");
  if (!data.end_of_generation.empty()) data.eos = data.end_of_generation.front();
  data.unknown = token_id(file, "tokenizer.ggml.unknown_token_id");
  data.separator = token_id(file, "tokenizer.ggml.seperator_token_id");  // the files' spelling
  if (!data.separator) data.separator = token_id(file, "tokenizer.ggml.separator_token_id");
  if (!data.bos) data.bos = token_id(file, "tokenizer.ggml.cls_token_id");
  for (const char* key :
       {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id", "tokenizer.ggml.eos_token_ids"}) {
    const std::vector<TokenId> ids = token_ids(file, key);
    data.end_of_generation.insert(data.end_of_generation.end(), ids.begin(), ids.end());
  }
  data.add_bos = file.get_bool("tokenizer.ggml.add_bos_token");
  data.add_eos = file.get_bool("tokenizer.ggml.add_eos_token");
  data.add_separator = file.get_bool("tokenizer.ggml.add_sep_token");
  data.add_space_prefix = file.get_bool("tokenizer.ggml.add_space_prefix");
  data.collapse_spaces = file.get_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  for (const std::int64_t byte : numbers<std::int64_t>(file, "tokenizer.ggml.precompiled_charsmap"))
    data.character_map += static_cast<char>(static_cast<unsigned char>(byte));
  data.lowercase = file.get_bool("tokenizer.ggml.normalizer.lowercase").value_or(true);
  data.strip_accents = file.get_bool("tokenizer.ggml.normalizer.strip_accents");
  for (const std::int64_t id : numbers<std::int64_t>(file, "tokenizer.ggml.suppress_tokens")) {
    if (id >= 0 && id <= std::numeric_limits<std::int32_t>::max())
      data.suppressed.push_back(TokenId{static_cast<std::int32_t>(id)});
  }
  return data;
}

}  // namespace

std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufFile& file, const std::string& where) {
  const VocabularyData data = read_vocabulary(file);
  return located(where, [&] { return make_tokenizer(data); });
}

std::shared_ptr<const Tokenizer> read_hf_tokenizer(const std::filesystem::path& directory) {
  const auto path = directory / "tokenizer.json";
  auto tokenizer = read_text_file(path);
  if (!tokenizer) throw StartupError(fmt::format("{}: is missing", path.string()));
  TokenizerFiles files;
  files.tokenizer_json = std::move(*tokenizer);
  files.tokenizer_config_json = read_text_file(directory / "tokenizer_config.json").value_or("");
  files.special_tokens_map_json = read_text_file(directory / "special_tokens_map.json").value_or("");
  files.generation_config_json = read_text_file(directory / "generation_config.json").value_or("");
  if (const auto config = read_json_file(directory / "config.json"))
    files.config_json = config->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return located(directory.string(), [&] { return make_tokenizer(files); });
}

namespace {

// A tokenizer without its last tokens: texts of special ones among them are encoded like other text.
class ShorterTokenizer final : public Tokenizer {
 public:
  ShorterTokenizer(std::shared_ptr<const Tokenizer> whole, std::int32_t size) : whole_(std::move(whole)), size_(size) {
    for (const TokenId id : whole_->end_of_generation())
      if (has(id)) ends_.push_back(id);
    for (const TokenId id : whole_->suppressed())
      if (has(id)) suppressed_.push_back(id);
    for (std::int32_t id = size_; id < whole_->vocab_size(); ++id)
      if (whole_->is_special(TokenId{id})) lost_.emplace_back(whole_->token_bytes(TokenId{id}));
    std::erase(lost_, "");
  }

  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special) const override {
    return without_those(whole_->encode(spelt(pieces), add_special));
  }
  std::optional<std::vector<TokenId>> encode_at_most(std::span<const TextPiece> pieces, bool add_special,
                                                     std::size_t most) const override {
    auto tokens = whole_->encode_at_most(spelt(pieces), add_special, most);
    return tokens ? std::optional(without_those(*std::move(tokens))) : std::nullopt;
  }
  std::int32_t vocab_size() const override { return size_; }
  std::string_view token_bytes(TokenId id) const override { return has(id) ? whole_->token_bytes(id) : ""; }
  bool is_special(TokenId id) const override { return has(id) && whole_->is_special(id); }
  std::optional<TokenId> find_token(std::string_view text) const override {
    const auto id = whole_->find_token(text);
    return id && has(*id) ? id : std::nullopt;
  }
  std::optional<TokenId> bos() const override { return whole_->bos(); }
  std::span<const TokenId> end_of_generation() const override { return ends_; }
  PairTokens pair_tokens() const override { return whole_->pair_tokens(); }
  std::span<const TokenId> suppressed() const override { return suppressed_; }
  bool strips_leading_space() const override { return whole_->strips_leading_space(); }

 private:
  bool has(TokenId id) const { return id.value < size_; }
  // Splits pieces so that the texts of lost tokens are not trusted.
  std::vector<TextPiece> spelt(std::span<const TextPiece> pieces) const {
    std::vector<TextPiece> out;
    for (const TextPiece& piece : pieces) {
      std::string_view rest = piece.text;
      while (piece.trusted && !rest.empty()) {
        std::size_t first = std::string_view::npos;
        std::size_t length = 0;
        for (const std::string& text : lost_) {
          const std::size_t at = rest.find(text);
          if (at >= first) continue;
          first = at;
          length = text.size();
        }
        if (first == std::string_view::npos) break;
        out.push_back({std::string(rest.substr(0, first)), true});
        out.push_back({std::string(rest.substr(first, length)), false});
        rest.remove_prefix(first + length);
      }
      out.push_back({std::string(rest), piece.trusted});
    }
    return out;
  }
  // Removes lost tokens: the model's embedding must never be read beyond its end.
  std::vector<TokenId> without_those(std::vector<TokenId> tokens) const {
    std::erase_if(tokens, [&](TokenId id) { return !has(id); });
    return tokens;
  }

  const std::shared_ptr<const Tokenizer> whole_;
  const std::int32_t size_;
  std::vector<TokenId> ends_;
  std::vector<TokenId> suppressed_;
  std::vector<std::string> lost_;  // texts of special tokens
};

}  // namespace

std::shared_ptr<const Tokenizer> fit_vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int64_t vocab_size,
                                                const std::string& chat_template, const std::string& where) {
  const std::int32_t count = tokenizer->vocab_size();
  if (count <= vocab_size) return tokenizer;
  const auto fits = [&](std::span<const TokenId> ids) {
    return std::ranges::all_of(ids, [&](TokenId id) { return id.value < vocab_size; });
  };
  const auto refuse = [&](const std::string& why) {
    throw StartupError(
        fmt::format("{}: the tokenizer has {} tokens, the model's embedding {}, and {}: take the "
                    "tokenizer that belongs to these weights",
                    where, count, vocab_size, why));
  };
  const PairTokens pair = tokenizer->pair_tokens();
  const bool fits_around = fits(tokenizer->encode("", true, false)) && fits(pair.first) && fits(pair.between) &&
                           fits(pair.last) && (!tokenizer->bos() || tokenizer->bos()->value < vocab_size);
  if (!fits_around) refuse("one of those beyond it is put around each text");
  for (auto id = static_cast<std::int32_t>(vocab_size); id < count; ++id) {
    const std::string text(tokenizer->token_bytes(TokenId{id}));
    if (!fits(tokenizer->encode(text, false, false)))
      refuse(fmt::format("the text '{}' yields token {}", printable(text), id));
    if (!text.empty() && tokenizer->is_special(TokenId{id}) && chat_template.find(text) != std::string::npos)
      refuse(fmt::format("the chat template writes token {}, '{}'", id, printable(text)));
  }
  log::warn(
      "{}: the tokenizer has {} tokens and the model's embedding {}: those beyond it are "
      "left out",
      where, count, vocab_size);
  return std::make_shared<ShorterTokenizer>(std::move(tokenizer), static_cast<std::int32_t>(vocab_size));
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return read_hf_tokenizer(path);
  return read_gguf_tokenizer(*GgufFile::open(path), path.string());
}

}  // namespace quire
