#include "tests/server/fake_tokenizer.h"

#include "core/grammar/compiler.h"
#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"

namespace quire::test {

ByteTokenizer::ByteTokenizer() {
  for (std::size_t i = 0; i < 256; ++i)
    texts_[i] = std::string(1, static_cast<char>(i));
  texts_[256] = "<s>";
  texts_[257] = "</s>";
  texts_[258] = "<|im_start|>";
  texts_[259] = "<|im_end|>";
}

std::vector<TokenId> ByteTokenizer::encode(std::span<const TextPiece> pieces, bool add_special) const {
  std::vector<TokenId> ids;
  if (add_special) ids.push_back(kBos);
  for (const TextPiece& piece : pieces) {
    for (std::size_t at = 0; at < piece.text.size();) {
      std::size_t special = 256;
      while (special < 260 && piece.text.compare(at, texts_[special].size(), texts_[special]) != 0)
        ++special;
      if (piece.trusted && special < 260) {
        ids.push_back(TokenId{static_cast<std::int32_t>(special)});
        at += texts_[special].size();
      } else {
        ids.push_back(TokenId{static_cast<unsigned char>(piece.text[at++])});
      }
    }
  }
  return ids;
}

std::string_view ByteTokenizer::token_bytes(TokenId id) const {
  return id.value >= 0 && id.value < vocab_size() ? std::string_view(texts_[static_cast<std::size_t>(id.value)]) : "";
}

std::optional<TokenId> ByteTokenizer::find_token(std::string_view text) const {
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (token_bytes(TokenId{id}) == text) return TokenId{id};
  }
  return std::nullopt;
}

std::shared_ptr<ServedModel> fake_model(RequestQueue& queue, std::int64_t max_model_len) {
  auto model = std::make_shared<ServedModel>();
  model->name = "fake";
  model->aliases = {"gpt-fake"};
  model->created = 1700000000;
  model->info.architecture = "llama";
  model->info.vocab_size = 260;
  model->info.hidden_size = 4;
  model->tokenizer = std::make_shared<ByteTokenizer>();
  model->chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(kDefaultChatTemplate));
  model->template_capabilities = probe_capabilities(*model->chat_template);
  model->tool_format = *find_tool_format("hermes");
  model->grammar_compiler =
      std::make_shared<const GrammarCompiler>(std::make_shared<TokenVocabulary>(*model->tokenizer));
  model->max_model_len = max_model_len;
  model->max_num_choices = 16;
  model->queue = std::shared_ptr<RequestQueue>(std::shared_ptr<void>(), &queue);
  return model;
}

std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text)
    ids.push_back(TokenId{static_cast<unsigned char>(c)});
  return ids;
}

}  // namespace quire::test
