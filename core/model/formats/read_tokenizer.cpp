#include "core/model/formats/read_tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <type_traits>

#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/base/result.h"
#include "core/model/formats/json_file.h"
#include "core/text/tokenizer_data.h"

namespace quire {
namespace {

// An array of numbers of any kind as T; empty where the key is absent.
template <class T>
std::vector<T> numbers(const GgufFile& file, std::string_view key) {
  std::vector<T> out;
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return out;
  const bool is_numbers = std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        // Reals count where reals are wanted: not every one is a whole number.
        if constexpr (std::is_same_v<Value, std::vector<std::uint64_t>> ||
                      std::is_same_v<Value, std::vector<std::int64_t>> ||
                      (std::is_same_v<Value, std::vector<double>> && std::is_floating_point_v<T>)) {
          out.reserve(value.size());
          for (const auto number : value)
            out.push_back(static_cast<T>(number));
          return true;
        }
        return false;
      },
      found->second);
  if (!is_numbers) throw StartupError(fmt::format("{} is not an array of numbers", key));
  return out;
}

std::optional<TokenId> token_id(const GgufFile& file, std::string_view key) {
  const auto value = file.get_int(key);
  // Converters write 2^32 - 1 for "none".
  if (!value || *value < 0 || *value == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  if (*value > std::numeric_limits<std::int32_t>::max())
    throw StartupError(fmt::format("{} = {} is no token", key, *value));
  return TokenId{static_cast<std::int32_t>(*value)};
}

std::vector<TokenKind> kinds(const GgufFile& file) {
  std::vector<TokenKind> out;
  for (const std::int64_t number : numbers<std::int64_t>(file, "tokenizer.ggml.token_type")) {
    if (number < 0 || number > static_cast<std::int64_t>(TokenKind::kByte)) {
      throw StartupError(fmt::format("tokenizer.ggml.token_type holds the unknown kind {}", number));
    }
    out.push_back(number == 0 ? TokenKind::kNormal : static_cast<TokenKind>(number));
  }
  return out;
}

// Names and patterns in a message are the file's own words: so much of them is shown.
constexpr std::size_t kMostShown = 1500;

// Says where the error lies.
template <class Make>
std::shared_ptr<const Tokenizer> located(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const StartupError& error) {
    throw StartupError(fmt::format("{}: {}", where, printable(error.what(), kMostShown)));
  }
}

std::shared_ptr<const Tokenizer> from_metadata(const GgufFile& file) {
  const auto model = file.get_string("tokenizer.ggml.model");
  const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!model || tokens == nullptr) throw StartupError("the file has no tokenizer (tokenizer.ggml.model and .tokens)");
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
  data.eos = token_id(file, "tokenizer.ggml.eos_token_id");
  data.unknown = token_id(file, "tokenizer.ggml.unknown_token_id");
  data.separator = token_id(file, "tokenizer.ggml.seperator_token_id");  // spelt so by the files
  if (!data.separator) data.separator = token_id(file, "tokenizer.ggml.separator_token_id");
  if (!data.bos) data.bos = token_id(file, "tokenizer.ggml.cls_token_id");
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = token_id(file, key)) data.end_of_generation.push_back(*id);
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
  return make_tokenizer(data);
}

}  // namespace

std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufFile& file, const std::string& where) {
  return located(where, [&] { return from_metadata(file); });
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
  return located(directory.string(), [&] { return make_tokenizer(files); });
}

void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab_size, const std::string& where) {
  if (tokenizer.vocab_size() <= vocab_size) return;
  throw StartupError(fmt::format("{}: the tokenizer has {} tokens, the model's embedding {}", where,
                                 tokenizer.vocab_size(), vocab_size));
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return read_hf_tokenizer(path);
  return read_gguf_tokenizer(*GgufFile::open(path), path.string());
}

}  // namespace quire
