#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/text/tokenizer/read/json_components.h"
#include "core/text/tokenizer/read/json_models.h"
#include "core/text/tokenizer/text_tokenizer.h"
#include "core/text/tokenizer_data.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

using nlohmann::json;

json parse(const std::string& text, const char* file) {
  if (text.empty()) return json::object();
  try {
    json parsed = json::parse(text);
    if (parsed.is_object()) return parsed;
  } catch (const json::parse_error& error) {
    throw StartupError(fmt::format("{}: is not valid JSON at byte {}: download it again", file, error.byte));
  } catch (const json::exception& error) {
    throw StartupError(fmt::format("{}: {}", file, error.what()));
  }
  throw StartupError(fmt::format("{} is not a JSON object", file));
}

json member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? json() : *found;
}

struct Documents {
  json tokenizer;
  json config;
  json special_map;
  json generation;
  json model;
};

AddedToken read_added(const json& object, TokenId id) {
  return {.content = object.at("content").get<std::string>(),
          .id = id,
          .special = value_or(object, "special", false),
          .single_word = value_or(object, "single_word", false),
          .lstrip = value_or(object, "lstrip", false),
          .rstrip = value_or(object, "rstrip", false),
          .normalized = value_or(object, "normalized", false)};
}

JsonVocabulary read_vocabulary(const Documents& documents) {
  JsonVocabulary vocabulary;
  const auto put = [&](TokenId id, const std::string& text) {
    const auto index = static_cast<std::size_t>(id.value);
    if (index >= vocabulary.texts.size()) vocabulary.texts.resize(index + 1);
    vocabulary.texts[index] = text;
  };
  const json& vocab = documents.tokenizer.at("model").at("vocab");
  vocabulary.texts.reserve(vocab.size());
  if (vocab.is_array()) {
    read_pieces(vocab, vocabulary);
  } else {
    for (const auto& [text, id] : vocab.items())
      put(read_token_id(id), text);
  }
  const auto add = [&](const json& object, TokenId id) {
    AddedToken token = read_added(object, id);
    put(id, token.content);
    vocabulary.added.push_back(std::move(token));
  };
  for (const json& object : member(documents.tokenizer, "added_tokens"))
    add(object, read_token_id(object.at("id")));
  // Tokens that only tokenizer_config.json knows are added as well.
  std::unordered_set<std::string> known;
  for (const AddedToken& token : vocabulary.added)
    known.insert(token.content);
  const json decoder = member(documents.config, "added_tokens_decoder");
  for (const auto& [key, object] : decoder.items()) {
    const json id = json::parse(key, nullptr, false);
    if (!id.is_number_integer())
      throw StartupError("tokenizer_config.json: added_tokens_decoder has the key '" + key + "'");
    if (known.count(object.at("content").get<std::string>()) == 0) add(object, read_token_id(id));
  }
  return vocabulary;
}

// The text of each token by the file's decoder.
std::vector<std::string> decoded_texts(const JsonVocabulary& vocabulary, const JsonDecoder& decoder) {
  std::vector<std::string> out = vocabulary.texts;
  for (std::string& text : out) {
    if (decoder.byte_level) {
      if (auto bytes = unicode::bytes_from_alphabet(text)) text = std::move(*bytes);
      continue;
    }
    for (const auto& [from, to] : decoder.replacements) {
      for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
      }
    }
    if (!decoder.continuing_prefix.empty()) {
      const bool continues = text.starts_with(decoder.continuing_prefix);
      text = continues ? text.substr(decoder.continuing_prefix.size()) : " " + text;
    }
    if (const auto byte = decoder.byte_fallback ? byte_token_value(text) : std::nullopt)
      text = static_cast<char>(*byte);
  }
  for (const AddedToken& token : vocabulary.added)
    out[static_cast<std::size_t>(token.id.value)] = token.content;
  return out;
}

// Values such as "bos_token" are a string or an object with `content`.
std::optional<TokenId> named_token(const Documents& documents, const char* key, const TextIndex& names) {
  for (const json* source : {&documents.config, &documents.special_map}) {
    const json found = member(*source, key);
    const std::string text =
        found.is_object() ? found.at("content").get<std::string>() : value_or<std::string>(*source, key, "");
    const std::int32_t id = text.empty() ? -1 : names.find(text);
    if (id >= 0) return TokenId{id};
  }
  return std::nullopt;
}

// Reads an id or a list of ids; null and -1 stand for none.
void read_end_ids(const json& listed, const char* file, TextTokenizerParts& parts) {
  for (const json& id : listed.is_array() ? listed : listed.is_null() ? json::array() : json::array({listed})) {
    if (id == -1) continue;
    if (!id.is_number_integer())
      throw StartupError(fmt::format("{}: 'eos_token_id' is {}, not a token's number or a list of them", file,
                                     printable(id.dump(-1, ' ', true, json::error_handler_t::replace))));
    // An id outside the vocabulary is never drawn.
    if (id >= 0 && id < parts.bytes.size()) parts.end_of_generation.push_back(read_token_id(id));
  }
}

// The generation config takes precedence over the model's config, as in transformers.
void read_ends(const Documents& documents, TextTokenizerParts& parts) {
  auto& ends = parts.end_of_generation;
  if (const json listed = member(documents.generation, "eos_token_id"); !listed.is_null()) {
    read_end_ids(listed, "generation_config.json", parts);
  } else {
    const json text = member(documents.model, "text_config");
    const json own = text.is_object() ? member(text, "eos_token_id") : json();
    read_end_ids(own.is_null() ? member(documents.model, "eos_token_id") : own, "config.json", parts);
  }
  for (const TokenId id : ends_by_text(parts.names)) {
    if (parts.special[static_cast<std::size_t>(id.value)]) ends.push_back(id);
  }
  put_in_order(ends, named_token(documents, "eos_token", parts.names));
}

void read_suppressed(const Documents& documents, TextTokenizerParts& parts) {
  for (const json& id : member(documents.generation, "suppress_tokens")) {
    const TokenId token = read_token_id(id);
    if (static_cast<std::size_t>(token.value) < parts.bytes.size()) parts.suppressed.push_back(token);
  }
}

// A value of another type is never taken as absent.
std::optional<bool> stated_flag(const json& config, const char* key) {
  const json flag = member(config, key);
  if (flag.is_null()) return std::nullopt;
  if (flag == true || flag == 1 || flag == "true") return true;
  if (flag == false || flag == 0 || flag == "false") return false;
  throw StartupError(fmt::format("tokenizer_config.json: '{}' is not true or false", key));
}

void read_prefix_and_suffix(const Documents& documents, TextTokenizerParts& parts) {
  SurroundingTokens& around = parts.around;
  around = read_post_processor(member(documents.tokenizer, "post_processor"));
  for (const auto* ids :
       {&around.prefix, &around.suffix, &around.pair_first, &around.pair_between, &around.pair_last}) {
    for (const TokenId id : *ids) {
      if (id.value < 0 || static_cast<std::size_t>(id.value) >= parts.bytes.size()) {
        throw StartupError(
            fmt::format("tokenizer.json: the post-processor's token {} is not in the vocabulary", id.value));
      }
    }
  }
  // Transformers rebuilds the Llama tokenizers' post-processor from these two flags.
  if (!value_or<std::string>(documents.config, "tokenizer_class", "").starts_with("LlamaTokenizer")) return;
  const auto eos = named_token(documents, "eos_token", parts.names);
  if (const auto adds = stated_flag(documents.config, "add_bos_token")) {
    around.prefix.clear();
    if (*adds && parts.bos) around.prefix = {*parts.bos};
  }
  if (const auto adds = stated_flag(documents.config, "add_eos_token")) {
    around.suffix.clear();
    if (*adds && eos) around.suffix = {*eos};
  }
}

std::shared_ptr<const Tokenizer> build(const Documents& documents) {
  const json& tokenizer = documents.tokenizer;
  JsonVocabulary vocabulary = read_vocabulary(documents);
  JsonNormalizer normalizer = read_normalizer(member(tokenizer, "normalizer"));
  JsonPreTokenizer pre_tokenizer = read_pre_tokenizer(member(tokenizer, "pre_tokenizer"), normalizer.byte_level);
  JsonDecoder decoder = read_decoder(member(tokenizer, "decoder"));
  const bool byte_level = normalizer.byte_level || pre_tokenizer.byte_level;
  decoder.byte_level = decoder.byte_level || (byte_level && member(tokenizer, "decoder").is_null());

  TextTokenizerParts parts;
  parts.model = read_json_model(tokenizer.at("model"), vocabulary, byte_level);
  parts.bytes = decoded_texts(vocabulary, decoder);
  parts.special.resize(vocabulary.texts.size());
  parts.names.reserve(vocabulary.texts.size());
  for (std::size_t id = 0; id < vocabulary.texts.size(); ++id) {
    if (!vocabulary.texts[id].empty()) parts.names.insert(vocabulary.texts[id], static_cast<std::int32_t>(id));
  }
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  Regex::Matcher matcher;
  for (AddedToken& token : vocabulary.added) {
    parts.special[static_cast<std::size_t>(token.id.value)] = token.special;
    // A control token is looked for in the text as written: normalising cannot say which text is trusted.
    if (!token.normalized || token.special || normalizer.normalizer.empty()) {
      raw.push_back(token);
    } else {
      normalized.push_back(token);
      normalized.back().content = normalizer.normalizer.apply(token.content, matcher);
    }
  }
  parts.bos = named_token(documents, "bos_token", parts.names);
  read_ends(documents, parts);
  read_suppressed(documents, parts);
  read_prefix_and_suffix(documents, parts);
  parts.added = AddedTokens(std::move(raw));
  parts.added_normalized = AddedTokens(std::move(normalized));
  parts.normalizer = std::move(normalizer.normalizer);
  parts.pre_tokenizer = std::move(pre_tokenizer.pre_tokenizer);
  parts.strips_leading_space = decoder.strips_leading_space;
  return std::make_shared<TextTokenizer>(std::move(parts));
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerFiles& files) {
  const Documents documents{
      parse(files.tokenizer_json, "tokenizer.json"), parse(files.tokenizer_config_json, "tokenizer_config.json"),
      parse(files.special_tokens_map_json, "special_tokens_map.json"),
      parse(files.generation_config_json, "generation_config.json"), parse(files.config_json, "config.json")};
  try {
    return build(documents);
  } catch (const json::exception& error) {
    throw StartupError(fmt::format("tokenizer.json or its companions are not as expected: {}", error.what()));
  }
}

}  // namespace quire
