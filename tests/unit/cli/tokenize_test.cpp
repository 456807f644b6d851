#include "server/dev/commands.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/text/tokenizer_data.h"
#include "server/cli/tokenize.h"

namespace quire::dev {
namespace {

// "a", "b" and "ab" as bytes, a control token <s> and a space.
std::shared_ptr<const Tokenizer> small_tokenizer() {
  TokenizerFiles files;
  files.tokenizer_json = R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}})";
  return make_tokenizer(files);
}

using Map = std::size_t (*)(std::istream&, std::ostream&, const Tokenizer&, const cli::TokenizeOptions&);

std::string mapped(Map map, const std::string& lines, const cli::TokenizeOptions& options = {}) {
  std::istringstream in(lines);
  std::ostringstream out;
  map(in, out, *small_tokenizer(), options);
  return out.str();
}

}  // namespace

TEST_CASE("tokenize maps each line, special tokens only where asked for", "[cli]") {
  CHECK(mapped(tokenize_lines, "{\"text\":\"abba\"}\n{\"text\":\"\"}") == "{\"ids\":[2,1,0]}\n{\"ids\":[]}\n");
  CHECK(mapped(tokenize_lines, R"({"text":"<s>ab"})") == "{\"ids\":[2]}\n");  // <, s and > are no tokens of this one
  CHECK(mapped(tokenize_lines, R"({"text":"<s>ab","parse_special":true})") == "{\"ids\":[4,2]}\n");
  CHECK(mapped(tokenize_lines, R"({"text":"ab","add_special":true})") == "{\"ids\":[4,2]}\n");
  CHECK(mapped(tokenize_lines, R"({"text":"<s>ab"})", {.add_special = true, .parse_special = true}) ==
        "{\"ids\":[4,4,2]}\n");
}

TEST_CASE("detokenize maps each line back", "[cli]") {
  CHECK(mapped(detokenize_lines, R"({"ids":[4,2,3,1]})") == "{\"text\":\"<s>ab b\"}\n");
  CHECK(mapped(detokenize_lines, R"({"ids":[4,2,3,1],"skip_special":true})") == "{\"text\":\"ab b\"}\n");
}

TEST_CASE("a bad line becomes an error and the next one is mapped all the same", "[cli]") {
  const auto error_of = [](Map map, const std::string& line) {
    std::istringstream out(mapped(map, line + "\n{\"text\":\"a\"}\n"));
    std::string first;
    std::string second;
    std::getline(out, first);
    std::getline(out, second);
    if (map == tokenize_lines) CHECK(second == "{\"ids\":[0]}");
    return nlohmann::json::parse(first).value("error", std::string("no error"));
  };
  CHECK(error_of(tokenize_lines, "not json") == "the line is not a JSON object in UTF-8");
  CHECK(error_of(tokenize_lines, "{\"text\":\"\xFF\"}") == "the line is not a JSON object in UTF-8");
  CHECK(error_of(tokenize_lines, "[]") == "the line is not a JSON object in UTF-8");
  CHECK(error_of(tokenize_lines, "{}") == "'text' must be a string");
  CHECK(error_of(tokenize_lines, R"({"text":1})") == "'text' must be a string");
  CHECK(error_of(tokenize_lines, R"({"text":"a","addspecial":true})") == "unknown field 'addspecial'");
  CHECK(error_of(tokenize_lines, R"({"text":"a","add_special":1})") == "'add_special' must be true or false");
  CHECK(error_of(detokenize_lines, R"({"ids":"a"})") == "'ids' must be an array");
  CHECK(error_of(detokenize_lines, R"({"ids":[5]})") == "5 is not a token of the vocabulary");
  CHECK(error_of(detokenize_lines, R"({"ids":[-1]})") == "-1 is not a token of the vocabulary");
  CHECK(error_of(detokenize_lines, R"({"ids":[1.5]})") == "1.5 is not a token of the vocabulary");
}

}  // namespace quire::dev
