// WordPiece, Unigram and character-BPE vocabularies, compared with plain references on random text: spaces, unknown
// characters, pairs, digits and streams.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "core/base/result.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer/character_map.h"
#include "core/text/tokenizer/text_tokenizer.h"
#include "core/text/tokenizer_data.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

std::vector<std::int32_t> values(std::span<const TokenId> ids) {
  std::vector<std::int32_t> out;
  for (const TokenId id : ids)
    out.push_back(id.value);
  return out;
}

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text, bool add_special = false) {
  return values(tokenizer.encode(text, add_special, false));
}

using Ids = std::vector<std::int32_t>;

std::string streamed(const Tokenizer& tokenizer, std::string_view text) {
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = true, .at_text_start = true});
  std::string out;
  for (const TokenId id : tokenizer.encode(text, true, false))
    out += detokenizer.push(id);
  return out + detokenizer.finish();
}

VocabularyData bert_vocabulary() {
  VocabularyData data;
  data.model = "bert";
  data.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁want", "ed", "▁!", "▁a", "a", "▁日", "▁e"};
  return data;
}

VocabularyData unigram_vocabulary() {
  VocabularyData data;
  data.model = "t5";
  data.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "▁ab", "<tool>"};
  data.scores = {0, 0, 0, -2, -3, -3, -4, -4, -8, 0};
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  data.kinds[0] = TokenKind::kUnknown;
  data.kinds[1] = data.kinds[2] = TokenKind::kControl;
  data.kinds[9] = TokenKind::kUserDefined;
  data.unknown = TokenId{0};
  data.bos = TokenId{1};
  data.eos = TokenId{2};
  data.add_space_prefix = true;
  return data;
}

std::string random_word(std::mt19937& random, std::string_view alphabet, std::size_t most) {
  std::string word;
  for (std::size_t left = 1 + random() % most; left > 0; --left)
    word += alphabet[random() % alphabet.size()];
  return word;
}

// The texts of a random vocabulary over a small alphabet: all of its characters but one, and some longer ones.
std::vector<std::string> random_texts(std::mt19937& random) {
  std::vector<std::string> texts = {"a", "b", "c"};
  for (int i = 0; i < 30; ++i) {
    std::string text = random_word(random, "abcd", 5);
    if (text != "d" && std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts;
}

// The best sequence by looking at every last token of every prefix.
Ids plain_unigram(const std::vector<std::string>& texts, const std::vector<double>& scores, double unknown_score,
                  const std::string& word) {
  constexpr std::int32_t kUnknown = -1;
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    Ids ids;
  };
  std::vector<Best> best(word.size() + 1);
  best[0].score = 0;
  for (std::size_t end = 1; end <= word.size(); ++end) {
    for (std::size_t begin = 0; begin < end; ++begin) {
      const std::string part = word.substr(begin, end - begin);
      const auto found = std::find(texts.begin(), texts.end(), part);
      const bool known = found != texts.end();
      if (!known && part.size() > 1) continue;
      const auto id = known ? static_cast<std::int32_t>(found - texts.begin()) : kUnknown;
      const double score = best[begin].score + (known ? scores[static_cast<std::size_t>(id)] : unknown_score);
      if (score <= best[end].score) continue;
      best[end] = {score, best[begin].ids};
      if (known || best[end].ids.empty() || best[end].ids.back() != kUnknown) best[end].ids.push_back(id);
    }
  }
  return best.back().ids;
}

Ids plain_word_piece(const std::vector<std::string>& starts, const std::vector<std::string>& continuations,
                     std::string word) {
  constexpr std::int32_t kUnknown = -1;
  Ids ids;
  while (!word.empty()) {
    const auto& texts = ids.empty() ? starts : continuations;
    std::size_t size = word.size();
    auto found = texts.end();
    for (; size > 0 && found == texts.end(); --size)
      found = std::find(texts.begin(), texts.end(), word.substr(0, size));
    if (found == texts.end()) return {kUnknown};
    ids.push_back(static_cast<std::int32_t>(found - texts.begin()));
    word.erase(0, found->size());
  }
  return ids;
}

// A compiled character map of the given replacements: a double array whose blocks of children never share a place.
std::string compiled_map(const std::map<std::string, std::string>& replacements) {
  std::vector<std::string> prefixes = {""};
  for (const auto& [from, to] : replacements) {
    for (std::size_t size = 1; size <= from.size(); ++size) {
      const std::string prefix = from.substr(0, size);
      if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) prefixes.push_back(prefix);
    }
  }
  // The children of prefix number i stand at place (i + 1) * 256 xor their byte; an end's value at the block itself.
  std::map<std::string, std::uint32_t> place = {{"", 0}};
  for (const std::string& prefix : prefixes) {
    if (prefix.empty()) continue;
    const auto parent = std::find(prefixes.begin(), prefixes.end(), prefix.substr(0, prefix.size() - 1));
    const auto block = static_cast<std::uint32_t>(parent - prefixes.begin() + 1) * 256;
    place[prefix] = block ^ static_cast<std::uint8_t>(prefix.back());
  }
  std::vector<std::uint32_t> units((prefixes.size() + 1) * 256, 1U << 30);
  std::string texts;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    const std::string& prefix = prefixes[i];
    const auto block = static_cast<std::uint32_t>(i + 1) * 256;
    const std::uint32_t label = prefix.empty() ? 0 : static_cast<std::uint8_t>(prefix.back());
    const auto end = replacements.find(prefix);
    const std::uint32_t ends = end == replacements.end() ? 0 : 1U << 8;
    units[place[prefix]] = ((place[prefix] ^ block) << 10) | ends | label;
    if (ends == 0) continue;
    units[block] = static_cast<std::uint32_t>(texts.size()) | (1U << 31);
    texts += end->second + '\0';
  }
  const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
  std::string out(sizeof size + size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  std::memcpy(out.data() + sizeof size, units.data(), size);
  return out + texts;
}

std::string refusal(const VocabularyData& data) {
  try {
    make_tokenizer(data);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "it was taken";
}

}  // namespace

TEST_CASE("a word is its longest pieces, or unknown as a whole", "[tokenizer]") {
  const auto tokenizer = make_tokenizer(bert_vocabulary());
  CHECK(encoded(*tokenizer, "unaffable", true) == Ids{2, 4, 5, 6, 3});
  CHECK(encoded(*tokenizer, "UNwanted wanted!") == Ids{1, 7, 8, 9});
  CHECK(encoded(*tokenizer, " \t\n") == Ids{});
  CHECK(encoded(*tokenizer, "a日\xC3\x89") == Ids{10, 12, 13});  // an ideograph is a word; accents and case go
  CHECK(encoded(*tokenizer,
                "a\xE2\x80\x8D"
                "a") == Ids{10, 11});  // a format character vanishes
  CHECK(encoded(*tokenizer, std::string(100, 'a')).size() == 100);
  CHECK(encoded(*tokenizer, std::string(101, 'a')) == Ids{1});
  CHECK(encoded(*tokenizer, "[SEP]") == Ids{1, 1, 1});  // a text cannot forge a control token
  CHECK(values(tokenizer->encode("a[SEP]", false, true)) == Ids{10, 3});
  CHECK(streamed(*tokenizer, "unaffable wanted!") == "unaffable wanted !");
  const PairTokens pair = tokenizer->pair_tokens();
  CHECK(values(pair.first) == Ids{2});
  CHECK(values(pair.between) == Ids{3});
  CHECK(values(pair.last) == Ids{3});

  VocabularyData cased = bert_vocabulary();
  cased.lowercase = false;
  CHECK(encoded(*make_tokenizer(cased), "Want want") == Ids{1, 7});
  VocabularyData nameless = bert_vocabulary();
  nameless.tokens[2] = "other";
  CHECK(refusal(nameless).starts_with("a 'bert' vocabulary needs the tokens [CLS] and [SEP]"));
}

TEST_CASE("random words are spelt as the longest match from the left spells them", "[tokenizer]") {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    const auto starts = random_texts(random);
    const auto continuations = random_texts(random);
    const WordPieceModel model(starts, continuations, {});
    for (int i = 0; i < 50; ++i) {
      const std::string word = random_word(random, "abcd", 12);
      std::vector<TokenId> ids;
      model.encode(word, ids);
      const Ids expected = plain_word_piece(starts, continuations, word);
      CAPTURE(word);
      REQUIRE(values(ids) == (expected == Ids{-1} ? Ids{} : expected));
    }
  }
}

TEST_CASE("random words are spelt by the likeliest tokens", "[tokenizer]") {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    const auto texts = random_texts(random);
    std::vector<double> scores;
    for (std::size_t i = 0; i < texts.size(); ++i)
      scores.push_back(-static_cast<double>(random() % 100000) / 7919.0 - 1);
    constexpr double kUnknownScore = -30;
    const auto unknown = static_cast<std::int32_t>(texts.size());
    UnigramOptions options{.unknown = unknown, .unknown_score = kUnknownScore};
    const UnigramModel model(texts, scores, options);
    UnigramModel::Scratch scratch;
    for (int i = 0; i < 50; ++i) {
      const std::string word = random_word(random, "abcd", 14);
      std::vector<TokenId> ids;
      model.encode(word, scratch, ids);
      Ids expected = plain_unigram(texts, scores, kUnknownScore, word);
      std::replace(expected.begin(), expected.end(), -1, unknown);
      CAPTURE(word);
      REQUIRE(values(ids) == expected);
    }
  }
}

TEST_CASE("a unigram vocabulary marks spaces and fuses what it does not know", "[tokenizer]") {
  const auto tokenizer = make_tokenizer(unigram_vocabulary());
  CHECK(encoded(*tokenizer, "a b") == Ids{7, 3, 5});
  CHECK(encoded(*tokenizer, "ab", true) == Ids{3, 6, 2});  // -6 beats -8 and -7; the end is added by default
  CHECK(encoded(*tokenizer,
                "a\xC3\xA9\xC3\xA9"
                "b") == Ids{7, 0, 5});
  CHECK(encoded(*tokenizer, "a  b ") == Ids{7, 3, 3, 5, 3});
  CHECK(encoded(*tokenizer, "b<tool>a</s>") == Ids{3, 5, 9, 7, 0});
  CHECK(encoded(*tokenizer, "").empty());
  CHECK(streamed(*tokenizer, "ab a b") == "ab a b");
  VocabularyData data = unigram_vocabulary();
  data.collapse_spaces = true;
  data.add_bos = true;
  CHECK(encoded(*make_tokenizer(data), "  a  b ", true) == Ids{1, 7, 3, 5, 2});
  data.separator = TokenId{2};
  data.add_separator = true;
  const auto paired = make_tokenizer(data);
  CHECK(values(paired->pair_tokens().first) == Ids{1});
  CHECK(values(paired->pair_tokens().between) == Ids{2, 2});
  CHECK(values(paired->pair_tokens().last) == Ids{2});
  data.scores.clear();
  CHECK(refusal(data) == "a 't5' vocabulary needs tokenizer.ggml.scores");
}

TEST_CASE("a precompiled character map replaces the longest known sequence", "[tokenizer]") {
  const std::map<std::string, std::string> rules = {{"A", "a"},       {"\xEF\xBC\xA1", "a"}, {"fi", "FI"},
                                                    {"fit", "<fit>"}, {"\t", " "},           {"x", ""}};
  const CharacterMap map(compiled_map(rules));
  CHECK(map.apply("A\xEF\xBC\xA1"
                  "fixfitf\t\xC3\xA9") == "aaFI<fit>f \xC3\xA9");
  VocabularyData data = unigram_vocabulary();
  data.character_map = compiled_map(rules);
  CHECK(encoded(*make_tokenizer(data), "A\tb") == Ids{7, 3, 5});
  for (const std::string& broken : {std::string("abc"),
                                    std::string("\xFF\xFF\xFF\x7F"
                                                "abcd"),
                                    std::string(4, '\0')}) {
    data.character_map = broken;
    CHECK(refusal(data).starts_with("the precompiled character map"));
  }
  // Any bytes at all are taken without leaving the map.
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = compiled_map(rules);
    for (int i = 0; i < 300; ++i)
      bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    CharacterMap(bytes).apply("A fit of x \xEF\xBC\xA1 and more");
  }
}

TEST_CASE("Gemma's vocabulary merges characters and cuts at line breaks", "[tokenizer]") {
  VocabularyData data;
  data.model = "gemma4";
  data.tokens = {"<pad>", "<eos>", "<bos>", "a", "▁", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>", "a▁a"};
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  data.kinds[0] = data.kinds[1] = data.kinds[2] = TokenKind::kControl;
  data.kinds[8] = data.kinds[9] = TokenKind::kByte;
  data.merges = {"▁ a", "a ▁a"};
  data.bos = TokenId{2};
  data.eos = TokenId{1};
  data.add_bos = false;  // some files say so, but the model needs it
  const auto tokenizer = make_tokenizer(data);
  CHECK(encoded(*tokenizer, "a a", true) == Ids{2, 10});
  CHECK(encoded(*tokenizer, "a\n\n a\n\n\n") == Ids{3, 7, 5, 6, 6, 6});
  CHECK(encoded(*tokenizer, "\xC3\xA9") == Ids{8, 9});
  CHECK(streamed(*tokenizer, " a a\n\n\xC3\xA9") == " a a\n\n\xC3\xA9");
  data.merges.clear();
  CHECK(refusal(data) == "a 'gemma4' vocabulary needs tokenizer.ggml.merges");
}

TEST_CASE("digits are grouped in threes from the end of their run", "[tokenizer]") {
  const auto words = [](const char* name, std::string_view text) {
    const NamedPreTokenizer named = make_pre_tokenizer(name);
    Regex::Matcher matcher;
    PreTokenizer::Words cut;
    named.pre_tokenizer.split(text, true, matcher, cut);
    std::string out;
    for (const auto [begin, end] : cut.words)
      out += (out.empty() ? "" : "|") + std::string(cut.text.substr(begin, end - begin));
    return out;
  };
  CHECK(words("afmoe", "a1234567b") == "a|1|234|567|b");
  CHECK(words("superbpe", "x 12345 y") == "x |12|345| y");
  CHECK(words("tiny_aya", "12345 12345a") == "12|345| |123|45|a");
  CHECK(words("kimi-k2", "日本 Ab's 1234") == "日本| Ab's| |123|4");
  CHECK(words("exaone-moe", "we are here, 12") == "we are here|,| |1|2");
}

TEST_CASE("a WordPiece and a Unigram tokenizer.json are read", "[tokenizer]") {
  TokenizerFiles files;
  files.tokenizer_json = R"({"added_tokens":[{"id":0,"content":"[UNK]","special":true},
    {"id":1,"content":"[CLS]","special":true},{"id":2,"content":"[SEP]","special":true}],
    "normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
    "pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
    "post_processor":{"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}}],
      "pair":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}},
              {"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"[SEP]","type_id":1}}],
      "special_tokens":{"[CLS]":{"ids":[1]},"[SEP]":{"ids":[2]}}},
    "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":6,
      "vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"em":3,"##bed":4,"me":5,"!":6}}})";
  const auto bert = make_tokenizer(files);
  CHECK(encoded(*bert, "Embed me!", true) == Ids{1, 3, 4, 5, 6, 2});
  CHECK(encoded(*bert, "embedbed") == Ids{0});
  CHECK(streamed(*bert, "embed me") == "embed me");
  CHECK(values(bert->pair_tokens().between) == Ids{2});

  files.tokenizer_json =
      R"({"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":1,"content":"</s>","special":true}],
    "normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"Precompiled","precompiled_charsmap":null}]},
    "pre_tokenizer":{"type":"Metaspace","replacement":"▁","add_prefix_space":true},
    "decoder":{"type":"Metaspace","replacement":"▁","add_prefix_space":true},
    "post_processor":{"type":"RobertaProcessing","sep":["</s>",1],"cls":["<s>",0]},
    "model":{"type":"Unigram","unk_id":2,"vocab":[["<s>",0],["</s>",0],["<unk>",0],["▁",-2],["a",-3],["▁a",-4],["b",-3]]}})";
  files.generation_config_json = R"({"suppress_tokens":[6,99]})";
  const auto unigram = make_tokenizer(files);
  CHECK(encoded(*unigram, "a b\tz", true) == Ids{0, 5, 3, 6, 3, 2, 1});
  CHECK(values(unigram->pair_tokens().between) == Ids{1, 1});
  CHECK(streamed(*unigram, "a b a") == "a b a");
  CHECK(values(unigram->suppressed()) == Ids{6});
}

TEST_CASE("a vocabulary's turns end where its messages do not", "[tokenizer]") {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = "gpt-4o";
  data.tokens = {"a", "b", "ab", "<|end|>", "<|return|>", "<|call|>"};
  data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  data.merges = {"a b"};
  CHECK(values(make_tokenizer(data)->end_of_generation()) == Ids{4, 5});
  data.tokens[4] = "<|other|>";
  CHECK(values(make_tokenizer(data)->end_of_generation()) == Ids{3, 5});
  data.suppressed = {TokenId{1}, TokenId{77}};
  CHECK(values(make_tokenizer(data)->suppressed()) == Ids{1});
}

}  // namespace quire
