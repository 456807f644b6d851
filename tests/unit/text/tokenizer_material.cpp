#include "tests/unit/text/tokenizer_material.h"

#include <map>

#include "core/model/formats/read_tokenizer.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer_data.h"
#include "tests/support/material.h"

namespace quire::test {
namespace {

std::string text_of(const std::string& relative) {
  for (const char* ending : {"", ".gz"}) {
    if (const auto path = material(relative + ending)) return read_file(*path);
  }
  return {};
}

}  // namespace

std::shared_ptr<const Tokenizer> gguf_vocabulary(const std::string& name) {
  const auto path =
      material(name.find('/') == std::string::npos ? "tokenizers/llamacpp-vocab/ggml-vocab-" + name + ".gguf" : name);
  if (!path) return nullptr;
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer) tokenizer = read_gguf_tokenizer(*GgufFile::open(*path), name);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> json_vocabulary(const std::string& folder) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[folder];
  if (tokenizer) return tokenizer;
  TokenizerFiles files;
  files.tokenizer_json = text_of(folder + "/tokenizer.json");
  if (files.tokenizer_json.empty()) return nullptr;
  files.tokenizer_config_json = text_of(folder + "/tokenizer_config.json");
  files.special_tokens_map_json = text_of(folder + "/special_tokens_map.json");
  files.generation_config_json = text_of(folder + "/generation_config.json");
  return tokenizer = make_tokenizer(files);
}

std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = skip_special, .at_text_start = true});
  std::string text;
  for (const TokenId id : ids)
    text += detokenizer.push(id);
  return text + detokenizer.finish();
}

}  // namespace quire::test
