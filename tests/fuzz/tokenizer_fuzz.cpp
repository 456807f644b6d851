#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/detokenizer.h"
#include "core/text/tokenizer_data.h"
#include "core/text/unicode.h"
#include "kernels/check.h"

namespace {

using namespace quire;

struct Piece {
  std::string text;
  TokenKind kind;
};

void append_controls(std::vector<Piece>& pieces) {
  for (const char* text : {"<unk>", "<s>", "</s>"})
    pieces.push_back({text, TokenKind::kControl});
}

std::shared_ptr<const Tokenizer> made(VocabularyData data, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    data.tokens.push_back(piece.text);
    data.kinds.push_back(piece.kind);
    data.scores.push_back(-static_cast<float>(data.scores.size()));
  }
  data.unknown = TokenId{0};
  data.bos = TokenId{1};
  data.eos = TokenId{2};
  return make_tokenizer(data);
}

// Bytes, and a few words: as SentencePiece merges them by score, or Gemma by its list.
std::shared_ptr<const Tokenizer> sentence_pieces(std::string_view model) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::vector<Piece> pieces;
  append_controls(pieces);
  for (std::size_t byte = 0; byte < 256; ++byte)
    pieces.push_back({std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenKind::kByte});
  for (const char* text :
       {"\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81", "t", "h", "e", "th", "the", "\xE2\x96\x81the", "\xC3\xA9"})
    pieces.push_back({text, TokenKind::kNormal});
  VocabularyData data;
  data.model = model;
  if (model == "gemma4") data.merges = {"t h", "th e", "\xE2\x96\x81 the"};
  return made(std::move(data), pieces);
}

// Byte-level BPE in GPT-2's alphabet: printable bytes stand for themselves, the others for code points from 256 on.
std::shared_ptr<const Tokenizer> byte_pairs(std::string_view pre) {
  std::vector<Piece> pieces;
  append_controls(pieces);
  std::uint32_t extra = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string text;
    unicode::append(text, printable ? byte : extra++);
    pieces.push_back({std::move(text), TokenKind::kNormal});
  }
  for (const char* text : {"th", "the", "\xC4\xA0t", "\xC4\xA0the"})
    pieces.push_back({text, TokenKind::kNormal});
  VocabularyData data;
  data.model = "gpt2";
  data.pre = pre;
  data.merges = {"t h", "th e", "\xC4\xA0 t", "\xC4\xA0t he"};
  return made(std::move(data), pieces);
}

// WordPiece loses case, accents and unknown words, but its tokens must be valid tokens of the vocabulary.
std::shared_ptr<const Tokenizer> word_pieces() {
  VocabularyData data;
  data.model = "bert";
  data.tokens = {"[UNK]",
                 "[CLS]",
                 "[SEP]",
                 "\xE2\x96\x81th",
                 "e",
                 "\xE2\x96\x81"
                 "e",
                 "t",
                 "\xE2\x96\x81.",
                 "\xE2\x96\x81\xE6\x97\xA5"};
  return make_tokenizer(data);
}

void check_lossy(const Tokenizer& tokenizer, std::string_view text) {
  std::string decoded;
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = false, .at_text_start = true});
  for (const TokenId id : tokenizer.encode(text, true, false)) {
    QUIRE_CHECK(id.value >= 0 && id.value < tokenizer.vocab_size(), "an id is of the vocabulary");
    decoded += detokenizer.push(id);
  }
  decoded += detokenizer.finish();
  QUIRE_CHECK(unicode::is_valid(decoded), "decoded text is valid");
}

// Encodes as a client's text, then as a template's, and decodes token by token.
void check(const Tokenizer& tokenizer, std::string_view text, bool spaced) {
  std::string expected;
  unicode::append_sanitized(expected, text);
  // SentencePiece writes a space as this character, and takes one for the other.
  constexpr std::string_view kSpace = "\xE2\x96\x81";
  for (std::size_t at = 0; spaced && (at = expected.find(kSpace, at)) != std::string::npos;)
    expected.replace(at, kSpace.size(), " ");
  std::string decoded;
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = false, .at_text_start = true});
  for (const TokenId id : tokenizer.encode(text, false, false)) {
    QUIRE_CHECK(id.value >= 0 && id.value < tokenizer.vocab_size(), "an id is of the vocabulary");
    QUIRE_CHECK(!tokenizer.is_special(id), "a client's text forges no control token");
    decoded += detokenizer.push(id);
  }
  decoded += detokenizer.finish();
  QUIRE_CHECK(decoded == expected, "what was encoded is decoded");
  for (const TokenId id : tokenizer.encode(text, true, true))
    QUIRE_CHECK(id.value >= 0 && id.value < tokenizer.vocab_size(), "an id is of the vocabulary");
}

}  // namespace

// Passes any text through every kind of tokenizer.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::shared_ptr<const Tokenizer>> kTokenizers = {
      sentence_pieces("llama"), sentence_pieces("gemma4"),  byte_pairs("llama-bpe"), byte_pairs("gpt-2"),
      byte_pairs("kimi-k2"),    byte_pairs("deepseek-llm"), byte_pairs("afmoe")};
  static const std::vector<std::shared_ptr<const Tokenizer>> kLossy = {word_pieces(), sentence_pieces("t5")};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : kTokenizers)
    check(*tokenizer, text, tokenizer == kTokenizers[0] || tokenizer == kTokenizers[1]);
  for (const auto& tokenizer : kLossy)
    check_lossy(*tokenizer, text);
  return 0;
}
