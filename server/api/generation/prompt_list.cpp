#include "server/api/generation/prompt_list.h"

#include <fmt/core.h>

#include "core/text/detokenizer.h"
#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/pooling.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

std::string decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer, DetokenizerOptions{skip_special_tokens, true});
  std::string text;
  for (const TokenId token : tokens)
    text += detokenizer.push(token);
  return text + detokenizer.finish();
}

namespace {

struct TextOptions {
  bool add_special;
  bool parse_special;
  bool truncated;
  std::string prefix;
};

void add_text_prompt(FieldReader& reader, const Json& json, const std::string& name, const TextOptions& options,
                     const ServedModel& model, std::vector<Prompt>& prompts) {
  const TextPiece piece{options.prefix + json.get_ref<const std::string&>(), options.parse_special};
  auto tokens = encode_prompt({&piece, 1}, options.add_special, options.truncated, model, name);
  if (!tokens) return reader.fail(name, tokens.error().message, tokens.error().code);
  prompts.push_back({piece.text, *std::move(tokens)});
}

void add_token_prompt(FieldReader& reader, const Json& list, const std::string& name, const TextOptions& options,
                      const ServedModel& model, std::vector<Prompt>& prompts) {
  const std::int64_t most = options.truncated ? most_read_tokens(model) : most_counted_tokens(model);
  if (std::cmp_greater(list.size(), most)) {
    const Error error = far_too_long(model, most, name);
    return reader.fail(name, error.message, error.code);
  }
  const Json wrapped{{name, list}};
  FieldReader inner(wrapped);
  const auto ids = inner.integers(name.c_str(), 0, model.tokenizer->vocab_size() - 1, list.size());
  if (inner.error()) return take_error(reader, inner);
  Prompt prompt;
  for (const std::int32_t id : *ids)
    prompt.tokens.push_back(TokenId{id});
  prompt.text = decoded(*model.tokenizer, prompt.tokens);
  prompts.push_back(std::move(prompt));
}

}  // namespace

std::vector<Prompt> read_prompts(FieldReader& reader, const fields::Field& row, const ServedModel& model,
                                 const std::string& prefix, bool truncated) {
  const std::string field(row.name);
  std::vector<Prompt> prompts;
  const TextOptions options{
      reader.boolean(fields::generation::kAddSpecialTokens, true),
      reader.boolean(fields::completions::kParseSpecial, true),
      truncated || reader.has(fields::generation::kTruncatePromptTokens) || reader.has(fields::pooling::kTruncate),
      prefix};
  const Json* prompt = reader.find(row);
  if (prompt == nullptr) {
    reader.missing(field);
  } else if (prompt->is_string()) {
    add_text_prompt(reader, *prompt, field, options, model, prompts);
  } else if (!prompt->is_array() || prompt->empty()) {
    reader.fail(field,
                fmt::format("'{}' must be a string, an array of strings, or one or more arrays of token ids", field),
                "invalid_type");
  } else if (prompt->size() > kMaxPrompts && !prompt->front().is_number()) {
    reader.fail(field, fmt::format("'{}' holds more than {} prompts", field, kMaxPrompts));
  } else if (prompt->front().is_number()) {
    add_token_prompt(reader, *prompt, field, options, model, prompts);
  } else {
    for (const Json& element : *prompt) {
      const std::string name = fmt::format("{}[{}]", field, prompts.size());
      if (element.is_string()) {
        add_text_prompt(reader, element, name, options, model, prompts);
      } else if (element.is_array()) {
        add_token_prompt(reader, element, name, options, model, prompts);
      } else {
        reader.fail(name, fmt::format("'{}' must be a string or an array of token ids", name), "invalid_type");
      }
      if (reader.error()) break;
    }
  }
  return prompts;
}

}  // namespace quire
