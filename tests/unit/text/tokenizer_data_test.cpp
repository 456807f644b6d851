// Vocabularies that contradict themselves are refused with a line that says what is wrong.
#include "core/text/tokenizer_data.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/result.h"

namespace quire {
namespace {

VocabularyData small_sentencepiece() {
  VocabularyData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "▁a", "b"};
  data.scores = {0, 0, 0, -1, -2, -3, -4};
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  data.kinds[0] = TokenKind::kUnknown;
  data.kinds[1] = data.kinds[2] = TokenKind::kControl;
  data.unknown = TokenId{0};
  data.bos = TokenId{1};
  data.eos = TokenId{2};
  return data;
}

template <class Source>
std::string refusal(const Source& source) {
  try {
    make_tokenizer(source);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "it was taken";
}

std::vector<std::int32_t> values(const std::vector<TokenId>& ids) {
  std::vector<std::int32_t> out;
  for (const TokenId id : ids)
    out.push_back(id.value);
  return out;
}

}  // namespace

TEST_CASE("a vocabulary without byte tokens fuses unknown characters", "[tokenizer]") {
  const auto tokenizer = make_tokenizer(small_sentencepiece());
  CHECK(values(tokenizer->encode("a a", true, false)) == std::vector<std::int32_t>{1, 5, 5});
  CHECK(values(tokenizer->encode("a\xC3\xBC\xC3\xBC"
                                 "b\xC3\xBC",
                                 false, false)) == std::vector<std::int32_t>{5, 0, 6, 0});
  CHECK(values(tokenizer->encode("<s>a", false, true)) == std::vector<std::int32_t>{1, 5});
  CHECK(tokenizer->end_of_generation().size() == 1);
  CHECK(tokenizer->strips_leading_space());
}

TEST_CASE("a contradictory vocabulary is refused", "[tokenizer]") {
  VocabularyData data = small_sentencepiece();
  data.model = "rwkv";
  CHECK(refusal(data) ==
        "the tokenizer model 'rwkv' (tokenizer.ggml.model) is not supported: llama, gpt2, gemma4, bert and t5 are");
  data = small_sentencepiece();
  data.scores.pop_back();
  CHECK(refusal(data) == "tokenizer.ggml.scores has 6 entries for 7 tokens");
  data.scores.clear();
  CHECK(refusal(data) == "a 'llama' vocabulary needs tokenizer.ggml.scores");
  data = small_sentencepiece();
  data.scores[3] = std::nanf("");
  CHECK(refusal(data) == "tokenizer.ggml.scores holds a value that is not a number");
  data = small_sentencepiece();
  data.bos = TokenId{7};
  CHECK(refusal(data) == "the bos token's id 7 is not in the vocabulary of 7 tokens");
  data = small_sentencepiece();
  const std::string endless(5000, 'a');
  data.tokens[4] = endless;
  CHECK(refusal(data) == "token 4 is 5000 bytes long; at most 4096 are taken");
  data = small_sentencepiece();
  data.model = "gpt2";
  CHECK(refusal(data) == "a 'gpt2' vocabulary needs tokenizer.ggml.merges");
  data.merges = {"a b", "nospace"};
  CHECK(refusal(data) == "merge 1 is not two byte-level tokens (tokenizer.ggml.merges)");
  data.merges = {"a b"};
  data.pre = "martian";
  CHECK(refusal(data).starts_with("the pre-tokenizer 'martian'"));
}

TEST_CASE("user-defined tokens are found in any text, control tokens are not", "[tokenizer]") {
  VocabularyData data = small_sentencepiece();
  data.tokens.push_back("<tool>");
  data.scores.push_back(0);
  data.kinds.push_back(TokenKind::kUserDefined);
  data.tokens.push_back("<|im_end|>");  // left as plain text by its converter
  data.scores.push_back(0);
  data.kinds.push_back(TokenKind::kNormal);
  const auto tokenizer = make_tokenizer(data);
  CHECK(values(tokenizer->encode("a<tool>", false, false)) == std::vector<std::int32_t>{5, 7});
  CHECK(tokenizer->is_special(TokenId{8}));
  CHECK(values(tokenizer->encode("<|im_end|>", false, true)) == std::vector<std::int32_t>{8});
  CHECK(tokenizer->end_of_generation().size() == 2);
  data.eos = TokenId{8};  // templates write it, so it comes first
  CHECK(make_tokenizer(data)->end_of_generation().front() == TokenId{8});
}

TEST_CASE("a control token that is half a character cuts nothing", "[tokenizer]") {
  VocabularyData data = small_sentencepiece();
  data.tokens[1] = "\xC3";
  const auto tokenizer = make_tokenizer(data);
  CHECK(values(tokenizer->encode("\xC3\xA9", false, true)) == std::vector<std::int32_t>{3, 0});
}

TEST_CASE("a tokenizer.json that is broken or beyond us is refused", "[tokenizer]") {
  const auto refused = [](const char* text) {
    TokenizerFiles files;
    files.tokenizer_json = text;
    return refusal(files);
  };
  CHECK(refused("{").starts_with("tokenizer.json: "));
  CHECK(refused("[]") == "tokenizer.json is not a JSON object");
  CHECK(refused("{}").starts_with("tokenizer.json or its companions are not as expected: "));
  CHECK(refused(R"({"model":{"type":"Unigram","vocab":{}}})") ==
        "tokenizer.json: the model 'Unigram' is not supported: BPE, Unigram and WordPiece are");
  CHECK(refused(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})") == "tokenizer.json: -1 is no token id");
  CHECK(refused(R"({"model":{"type":"BPE","vocab":{"a":99999999},"merges":[]}})") ==
        "tokenizer.json: 99999999 is no token id");
  CHECK(refused(R"({"model":{"vocab":{"a":0},"merges":["a"]}})") == "tokenizer.json: merge 0 is not two tokens");
  CHECK(refused(R"({"model":{"vocab":{"a":0},"merges":[],"unk_token":"<unk>"}})") ==
        "tokenizer.json: the unknown token '<unk>' is not in the vocabulary");
  CHECK(refused(R"({"model":{"vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"}})") ==
        "tokenizer.json: model.end_of_word_suffix is not supported");
}

TEST_CASE("the model's own configuration names the ends where generation's names none", "[tokenizer]") {
  TokenizerFiles files;
  files.tokenizer_json = R"({"model":{"vocab":{"a":0,"b":1,"c":2},"merges":[]}})";
  const auto ends = [&](const char* config, const char* generation) {
    files.config_json = config;
    files.generation_config_json = generation;
    const auto tokenizer = make_tokenizer(files);
    const auto ids = tokenizer->end_of_generation();
    return values(std::vector<TokenId>(ids.begin(), ids.end()));
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ends(R"({"eos_token_id":2})", "") == Ids{2});
  CHECK(ends(R"({"eos_token_id":[1,2]})", "{}") == Ids{1, 2});
  CHECK(ends(R"({"eos_token_id":0,"text_config":{"eos_token_id":1}})", "") == Ids{1});
  CHECK(ends(R"({"eos_token_id":0})", R"({"eos_token_id":2})") == Ids{2});
  CHECK(ends(R"({"eos_token_id":null})", "").empty());
  CHECK(ends(R"({"eos_token_id":-1})", "").empty());
  CHECK(ends(R"({"eos_token_id":9})", "").empty());
  files.generation_config_json = "";
  files.config_json = R"({"eos_token_id":"2"})";
  CHECK(refusal(files) == "config.json: 'eos_token_id' is \"2\", not a token's number or a list of them");
}

TEST_CASE("merges come as strings or as pairs, and ends from every file that names them", "[tokenizer]") {
  TokenizerFiles files;
  files.tokenizer_json = R"({"added_tokens":[{"id":3,"content":"<e>","special":true}],
    "model":{"vocab":{"a":0,"b":1,"ab":2,"abb":4,"<end>":5},"merges":["a b",["ab","b"]]}})";
  files.tokenizer_config_json = R"({"eos_token":{"content":"<e>"},"bos_token":"<e>",
    "added_tokens_decoder":{"5":{"content":"<end>","special":true}}})";
  files.generation_config_json = R"({"eos_token_id":[3,5]})";
  const auto tokenizer = make_tokenizer(files);
  CHECK(values(tokenizer->encode("abbab", false, false)) == std::vector<std::int32_t>{4, 2});
  CHECK(tokenizer->bos() == TokenId{3});
  CHECK(tokenizer->end_of_generation().size() == 2);
  CHECK(tokenizer->is_special(TokenId{5}));
  CHECK(tokenizer->find_token("<end>") == TokenId{5});
  CHECK_FALSE(tokenizer->find_token("nothing"));
  CHECK(tokenizer->token_bytes(TokenId{-1}).empty());
  CHECK(tokenizer->token_bytes(TokenId{6}).empty());
}

}  // namespace quire
