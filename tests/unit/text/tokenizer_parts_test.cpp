// The parts of a tokenizer one by one: patterns, normalizers, splits, added tokens, merging.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/result.h"
#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/merge_model.h"
#include "core/text/tokenizer/read/json_components.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

Strings words_of(const json& pre_tokenizer, std::string_view text, bool at_start = true, bool in_alphabet = false) {
  const JsonPreTokenizer read = read_pre_tokenizer(pre_tokenizer, in_alphabet);
  Regex::Matcher matcher;
  PreTokenizer::Words words;
  read.pre_tokenizer.split(text, at_start, matcher, words);
  Strings out;
  for (const auto [begin, end] : words.words)
    out.emplace_back(words.text.substr(begin, end - begin));
  return out;
}

std::string normalized(const json& normalizer, std::string_view text) {
  Regex::Matcher matcher;
  return read_normalizer(normalizer).normalizer.apply(text, matcher);
}

json split_by(const char* pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

}  // namespace

TEST_CASE("a split keeps, drops or joins its matches as its behaviour says", "[tokenizer]") {
  const char* text = "the-final--countdown";
  CHECK(words_of(split_by("-", "Removed"), text) == Strings{"the", "final", "countdown"});
  CHECK(words_of(split_by("-", "Isolated"), text) == Strings{"the", "-", "final", "-", "-", "countdown"});
  CHECK(words_of(split_by("-", "MergedWithPrevious"), text) == Strings{"the-", "final-", "-", "countdown"});
  CHECK(words_of(split_by("-", "MergedWithNext"), text) == Strings{"the", "-final", "-", "-countdown"});
  CHECK(words_of(split_by("-", "Contiguous"), text) == Strings{"the", "-", "final", "--", "countdown"});
  CHECK(words_of(split_by("-", "MergedWithNext"), "a-") == Strings{"a", "-"});
  CHECK(words_of(split_by("-", "MergedWithPrevious"), "-a") == Strings{"-", "a"});
  CHECK(words_of(split_by("[a-z]+", "Removed", true), text) == Strings{"the", "final", "countdown"});
  CHECK(words_of(split_by("(?=f)", "Isolated"), "abfc") == Strings{"ab", "fc"});
  CHECK(words_of({{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Removed"}}, "a.b") ==
        Strings{"a", "b"});
}

TEST_CASE("a split may end soon after a number of words", "[tokenizer]") {
  const JsonPreTokenizer read = read_pre_tokenizer(split_by("\\s", "Isolated"));
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "word ";
  Regex::Matcher matcher;
  PreTokenizer::Words words;
  read.pre_tokenizer.split(text, true, matcher, words, 10);
  CHECK(words.words.size() > 10);
  CHECK(words.words.size() <= 12);
  read.pre_tokenizer.split(text, true, matcher, words);
  CHECK(words.words.size() == 2000);
}

TEST_CASE("the named pre-tokenizers of tokenizer.json", "[tokenizer]") {
  CHECK(words_of({{"type", "Digits"}, {"individual_digits", true}}, "a12b") == Strings{"a", "1", "2", "b"});
  CHECK(words_of({{"type", "Digits"}, {"individual_digits", false}}, "a12b") == Strings{"a", "12", "b"});
  CHECK(words_of({{"type", "Whitespace"}}, "Hey, man! é_1") == Strings{"Hey", ",", "man", "!", "é_1"});
  CHECK(words_of({{"type", "WhitespaceSplit"}}, " Hey,  man!\xC2\xA0x") == Strings{"Hey,", "man!", "x"});
  CHECK(words_of({{"type", "Punctuation"}}, "a,b!?$") == Strings{"a", ",", "b", "!", "?", "$"});
  CHECK(words_of({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a!?") == Strings{"a", "!?"});
  CHECK(words_of({{"type", "BertPreTokenizer"}}, "Hey, you") == Strings{"Hey", ",", "you"});
  CHECK(words_of({{"type", "CharDelimiterSplit"}, {"delimiter", "|"}}, "a|b") == Strings{"a", "b"});
  CHECK(words_of({{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}}, "it's 1 x") ==
        Strings{" it", "'s", " 1", " x"});
  const json after = {{"type", "Sequence"},
                      {"pretokenizers",
                       {{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}},
                        {{"type", "Split"}, {"pattern", {{"String", "\xC4\xA0"}}}, {"behavior", "Isolated"}}}}};
  const json normalized_already = {
      {"type", "Split"}, {"pattern", {{"String", "\xC4\xA0"}}}, {"behavior", "MergedWithNext"}};
  CHECK(words_of(normalized_already, "é b", true, true) == Strings{"é", " b"});
  // The second step sees the space in GPT-2's alphabet; the words come out as bytes again.
  CHECK(words_of(after, "é b") == Strings{"é", " ", "b"});
}

TEST_CASE("Metaspace marks spaces and prefixes by its scheme", "[tokenizer]") {
  json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  CHECK(words_of(metaspace, "Hey you  two") == Strings{"▁Hey", "▁you", "▁", "▁two"});
  CHECK(words_of(metaspace, " Hey") == Strings{"▁Hey"});
  metaspace["prepend_scheme"] = "first";
  CHECK(words_of(metaspace, "Hey", true) == Strings{"▁Hey"});
  CHECK(words_of(metaspace, "Hey", false) == Strings{"Hey"});
  metaspace["prepend_scheme"] = "never";
  metaspace["split"] = false;
  CHECK(words_of(metaspace, "Hey you") == Strings{"Hey▁you"});
}

TEST_CASE("normalizers change the text in their order", "[tokenizer]") {
  CHECK(normalized({{"type", "NFC"}}, "e\xCC\x81") == "\xC3\xA9");
  CHECK(normalized({{"type", "NFD"}}, "\xC3\xA9") == "e\xCC\x81");
  CHECK(normalized({{"type", "NFKC"}}, "\xEF\xAC\x81") == "fi");
  CHECK(normalized({{"type", "NFC"}}, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB") == "\xED\x95\x9C");  // jamo to a syllable
  CHECK(normalized({{"type", "StripAccents"}}, "e\xCC\x81") == "e");
  CHECK(normalized({{"type", "Lowercase"}}, "ÀB\xC4\xB0") == "àbi\xCC\x87");
  CHECK(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " a ") == "a ");
  CHECK(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, "  ").empty());
  CHECK(normalized({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}}, "a   b c") == "a_b c");
  const json llama = {{"type", "Sequence"},
                      {"normalizers",
                       {{{"type", "Prepend"}, {"prepend", "▁"}},
                        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  CHECK(normalized(llama, "a b") == "▁a▁b");
  CHECK(normalized(llama, "").empty());
}

TEST_CASE("what tokenizer.json may name and Quire does not have is refused by name", "[tokenizer]") {
  const auto message = [](const auto& read) {
    try {
      read();
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  CHECK(message([] {
          read_normalizer({{"type", "Martian"}});
        }) == "tokenizer.json: the normalizer 'Martian' is not supported");
  CHECK(message([] {
          read_pre_tokenizer({{"type", "UnicodeScripts"}});
        }) == "tokenizer.json: the pre-tokenizer 'UnicodeScripts' is not supported");
  CHECK(message([] { read_decoder({{"type", "CTC"}}); }) == "tokenizer.json: the decoder 'CTC' is not supported");
  CHECK(message([] {
          read_post_processor({{"type", "Other"}});
        }) == "tokenizer.json: the post-processor 'Other' is not supported");
  CHECK(message([] {
          make_pre_tokenizer("no-such");
        }).starts_with("the pre-tokenizer 'no-such' (tokenizer.ggml.pre) is not known"));
  CHECK(message([] { Regex::compile("a(b"); }).starts_with("the tokenizer's pattern 'a(b' cannot be compiled: "));
  CHECK(message([] { Regex::compile("[\\w&&[^a]]"); }).find("intersects classes") != std::string::npos);
  CHECK(message([] {
          read_pre_tokenizer({{"type", "Metaspace"}, {"replacement", ""}});
        }) == "tokenizer.json: the pre-tokenizer 'Metaspace' has an empty replacement");
  CHECK(message([] { Regex::compile("\\C"); }).starts_with("the tokenizer's pattern '\\C' cannot be compiled: "));
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i)
    deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  CHECK(message([&] { read_normalizer(deep); }) == "tokenizer.json nests its sequences too deeply");
}

TEST_CASE("every named pre-tokenizer compiles and leaves no text out", "[tokenizer]") {
  const std::string text = "I'll've 12345 naïve\n\n  日本語 \t(x) café's 🎉!! ";
  for (const char* name : {"default",
                           "gpt-2",
                           "mpt",
                           "refact",
                           "starcoder",
                           "falcon",
                           "deepseek-llm",
                           "deepseek-coder",
                           "deepseek-v3",
                           "llama-bpe",
                           "qwen2",
                           "deepseek-r1-qwen",
                           "command-r",
                           "smollm",
                           "tekken",
                           "gpt-4o",
                           "llama4",
                           "codeshell",
                           "olmo",
                           "stablelm2",
                           "bailingmoe",
                           "seed-coder",
                           "bloom",
                           "viking",
                           "chameleon",
                           "qwen35",
                           "smaug-bpe",
                           "chatglm-bpe",
                           "exaone",
                           "minerva-7b",
                           "jais",
                           "minicpm5",
                           "kimi-k2",
                           "youtu",
                           "afmoe",
                           "tiny_aya",
                           "cohere2moe",
                           "exaone-moe",
                           "jais-2",
                           "spark2_5",
                           "ufakzeka",
                           "laguna",
                           "granite-embed-multi-97m",
                           "joyai-llm",
                           "hy_v4",
                           "mellum2",
                           "talkie",
                           "jina-v5-nano",
                           "jina-v2-code",
                           "jina-v2-es",
                           "roberta-bpe"}) {
    CAPTURE(name);
    const NamedPreTokenizer named = make_pre_tokenizer(name);
    Regex::Matcher matcher;
    PreTokenizer::Words words;
    named.pre_tokenizer.split(text, true, matcher, words);
    std::string joined;
    for (const auto [begin, end] : words.words)
      joined += words.text.substr(begin, end - begin);
    CHECK(joined == text);
    CHECK(words.words.size() > 8);
  }
}

TEST_CASE("patterns mean Unicode's spaces and words", "[tokenizer]") {
  Regex::Matcher matcher;
  const auto finds = [&](const char* pattern, const char* text) {
    return matcher.find(Regex::compile(pattern), text, 0).has_value();
  };
  CHECK(finds("\\s", "\xC2\xA0"));
  CHECK(finds("\\s", "\xC2\x85"));
  CHECK_FALSE(finds("\\s", "\xE1\xA0\x8E"));  // U+180E has not been a space since Unicode 6.3
  CHECK(finds("[\\s]", "\xE3\x80\x80"));
  CHECK_FALSE(finds("\\S", " \xC2\xA0"));
  CHECK(finds("^\\w+$", "e\xCC\x81_1"));  // a combining mark belongs to its word
  CHECK(finds("[^\\s\\p{L}]", "1"));
  CHECK(finds("[]x]", "]"));
}

TEST_CASE("added tokens: the longest wins, strips take spaces along, single words stand alone", "[tokenizer]") {
  const auto parts_of = [](const AddedTokens& tokens, std::string_view text) {
    std::vector<AddedTokens::Part> parts;
    tokens.split(text, {}, parts);
    std::string shown;
    for (const auto& part : parts) {
      const auto span = text.substr(part.range.begin, part.range.end - part.range.begin);
      shown += part.token < 0 ? "[" + std::string(span) + "]"
                              : "{" + std::to_string(part.token) + ":" + std::string(span) + "}";
    }
    return shown;
  };
  const AddedTokens plain({{.content = "ab", .id = TokenId{1}}, {.content = "abc", .id = TokenId{2}}});
  CHECK(parts_of(plain, "xabcabx") == "[x]{2:abc}{1:ab}[x]");
  CHECK(parts_of(plain, "").empty());
  CHECK(parts_of(plain, "aab") == "[a]{1:ab}");
  const AddedTokens strips({{.content = "<m>", .id = TokenId{1}, .lstrip = true, .rstrip = true}});
  CHECK(parts_of(strips, "a \xC2\xA0<m> \n<m> b") == "[a]{1: \xC2\xA0<m> \n}{1:<m> }[b]");
  const AddedTokens single({{.content = "yes", .id = TokenId{1}, .single_word = true}});
  CHECK(parts_of(single, "yes eyes yes! yesé") == "{1:yes}[ eyes ]{1:yes}[! yesé]");
}

TEST_CASE("special tokens need a trusted range around all of them", "[tokenizer]") {
  const AddedTokens tokens({{.content = "<s>", .id = TokenId{1}, .special = true}, {.content = "<", .id = TokenId{2}}});
  const auto ids_in = [&](std::vector<AddedTokens::Range> trusted) {
    std::vector<AddedTokens::Part> parts;
    tokens.split("<s><s>", trusted, parts);
    std::vector<std::int32_t> ids;
    for (const auto& part : parts)
      ids.push_back(part.token);
    return ids;
  };
  CHECK(ids_in({}) == std::vector<std::int32_t>{2, -1, 2, -1});
  CHECK(ids_in({{0, 6}}) == std::vector<std::int32_t>{1, 1});
  CHECK(ids_in({{3, 6}}) == std::vector<std::int32_t>{2, -1, 1});
  CHECK(ids_in({{0, 2}, {3, 5}}) == std::vector<std::int32_t>{2, -1, 2, -1});
}

TEST_CASE("merging is the same by looking at all pairs and by the heap", "[tokenizer]") {
  const std::vector<std::string> texts = {"a", "b", "ab", "aa", "aba", "abab", "aaaa", "ba", "c"};
  const std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"},   {"a", "a"},   {"ab", "a"},
                                                                   {"ab", "ab"}, {"aa", "aa"}, {"b", "a"}};
  const MergeModel model(texts, merges, {.byte_level = true});
  const auto encode = [&](const std::string& word) {
    const auto scratch = model.make_scratch(word.size());
    std::vector<TokenId> ids;
    model.encode(word, *scratch, ids);
    std::string joined;
    for (const TokenId id : ids)
      joined += texts[static_cast<std::size_t>(id.value)] + "|";
    return joined;
  };
  // 41 symbols are merged one way, 82 the other; no merge crosses the "c", so the longer is the shorter twice.
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string unit;
    for (int i = 0; i < 40; ++i)
      unit += random() % 3 == 0 ? 'b' : 'a';
    unit += 'c';
    CHECK(encode(unit + unit) == encode(unit) + encode(unit));
  }
  CHECK(encode("aaab") == "aa|ab|");
  CHECK(encode("d").empty());
}

TEST_CASE("GPT-2's byte alphabet is one to one", "[tokenizer]") {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t code = unicode::byte_to_char(static_cast<std::uint8_t>(byte));
    CHECK(unicode::char_to_byte(code) == static_cast<std::uint8_t>(byte));
  }
  CHECK(unicode::byte_to_char(' ') == 0x120);
  CHECK_FALSE(unicode::char_to_byte(' '));
  CHECK_FALSE(unicode::bytes_from_alphabet("a b"));
}

TEST_CASE("decoding UTF-8 tells broken from unfinished", "[tokenizer]") {
  using unicode::Status;
  const auto status = [](std::string_view text) { return unicode::decode(text).status; };
  CHECK(status("\xE2\x82") == Status::kTruncated);
  CHECK(status("\xE2(") == Status::kInvalid);
  CHECK(status("\xED\xA0\x80") == Status::kInvalid);  // a surrogate
  CHECK(status("\xC0\x80") == Status::kInvalid);      // overlong
  CHECK(status("\xF4\x90") == Status::kInvalid);      // above U+10FFFF
  CHECK(status("\xF4\x8F\xBF\xBF") == Status::kValid);
  CHECK(unicode::decode("\xF0\x9F\x98(").length == 3);
}

}  // namespace quire
