// Parses the public cases of material/tool-calls, whole and in pieces of several sizes: each must give the recorded
// message.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>
#include <string>

#include "core/base/json/json.h"
#include "core/text/tools/output_parser.h"
#include "tests/support/material.h"

namespace quire {
namespace {

std::string stripped(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \n\t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n\t\r") + 1 - begin);
}

std::string text_or_empty(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

// Arguments are compared as JSON where they are JSON: the recordings differ in spacing alone.
Json arguments_of(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

ParsedOutput parse(const ToolFormat& format, const Json& line, const OutputParserOptions& options, std::size_t piece) {
  OutputParser parser(format, read_tool_specs(line.at("tools")), options);
  const auto text = line.at("input").get<std::string>();
  ParsedOutput output;
  for (std::size_t i = 0; i < text.size(); i += piece)
    output.apply(parser.push(text.substr(i, piece)));
  if (!line.value("is_partial", false)) output.apply(parser.finish());
  return output;
}

void check_calls(const ParsedOutput& output, const Json& expected) {
  REQUIRE(output.tool_calls.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(output.tool_calls[i].name == expected[i].at("name").get<std::string>());
    CHECK(arguments_of(output.tool_calls[i].arguments) == arguments_of(expected[i].at("arguments").get<std::string>()));
    if (expected[i].contains("id")) CHECK(output.tool_calls[i].id == expected[i].at("id").get<std::string>());
  }
}

constexpr std::size_t kPieces[] = {1, 2, 5, 17, 1'000'000};

TEST_CASE("outputs of formats known by name are parsed as recorded") {
  QUIRE_REQUIRE_MATERIAL(file, "tool-calls/vllm-tool-parsers.dev.jsonl");
  // The reference renames a model's tool to the benchmark's name for it; Quire keeps the name that the model wrote.
  const std::set<std::string> renamed = {"vllm-tool/250", "vllm-tool/252"};
  std::size_t num_cases = 0;
  for (const auto& text : test::read_lines(file)) {
    const Json line = Json::parse(text);
    const auto id = line.at("id").get<std::string>();
    if (renamed.contains(id)) continue;
    INFO(id << " " << line.at("test"));
    const ToolFormat* format = find_tool_format(line.at("format").get<std::string>());
    REQUIRE(format != nullptr);
    OutputParserOptions options;
    options.eager = false;
    options.parse_reasoning = false;
    for (const std::size_t piece : kPieces) {
      const ParsedOutput output = parse(*format, line, options, piece);
      check_calls(output, line.at("expected").at("tool_calls"));
      CHECK(output.content == text_or_empty(line.at("expected").at("content")));
    }
    ++num_cases;
  }
  CHECK(num_cases > 200);
}

TEST_CASE("outputs are parsed by the format that the chat template implies") {
  QUIRE_REQUIRE_MATERIAL(file, "tool-calls/llamacpp-chat-parse.dev.jsonl");
  QUIRE_REQUIRE_MATERIAL(templates, "chat-templates/templates");
  std::size_t num_cases = 0;
  for (const auto& text : test::read_lines(file)) {
    const Json line = Json::parse(text);
    const auto source = templates / line.at("template").get<std::string>();
    if (!std::filesystem::exists(source)) continue;
    INFO(line.at("id") << " " << line.at("template"));
    OutputParserOptions options;
    options.parse_reasoning = line.at("reasoning_format") != "none";
    options.parse_tools = !line.at("tools").empty();
    options.json_content = line.contains("json_schema");
    options.prompt_end = text_or_empty(line.at("generation_prompt"));
    const ToolFormat format = detect_tool_format(test::read_file(source));
    const Json& expected = line.at("expected");
    for (const std::size_t piece : kPieces) {
      const ParsedOutput output = parse(format, line, options, piece);
      check_calls(output, expected.at("tool_calls"));
      // The recordings were compared without the white space around them.
      CHECK(stripped(output.content) == stripped(text_or_empty(expected.at("content"))));
      CHECK(stripped(output.reasoning) == stripped(text_or_empty(expected.at("reasoning_content"))));
    }
    ++num_cases;
  }
  CHECK(num_cases > 150);
}

}  // namespace
}  // namespace quire
